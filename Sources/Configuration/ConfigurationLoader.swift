import API
import ByteStreams
import Sessions
import TLSEngine
import Upstream
import UpstreamProtocol
import WebSocketCodec

/// Loads the settings: defaults, then a built-in profile, the file, the environment, `--set`, and the other flags. All
/// errors are reported at once. `GatewayPlan` is made from the loaded settings, and adds its own errors
/// (`Outcome.errors(with:)`).
package struct ConfigurationLoader {
  /// Returns the content of a file, or nil if it cannot be read. The caller passes this function, so that the loader
  /// itself does not access the file system.
  package typealias FileReader = (String) -> [UInt8]?

  /// A configuration that is part of the program.
  package struct BuiltIn: Sendable {
    /// The name of the configuration in messages.
    package let title: String
    package let text: [UInt8]

    package init(title: String, text: [UInt8]) {
      self.title = title
      self.text = text
    }
  }

  /// Maximum size of a configuration file, in bytes.
  package static let maximumFileBytes = YAMLDocument.maximumBytes

  let environment: [String: String]
  let readFile: FileReader
  /// Paths of settings that are not read, because a command sets them itself.
  let ignored: Set<String>
  private let references: SecretReferenceReader
  private let paths: PathResolver
  private var settings = GatewaySettings()
  private var origins: [String: String] = [:]
  /// The places of named sessions and profiles, by the prefix of their paths.
  private var groupPlaces: [String: String] = [:]
  private var written: [String: [WrittenValue]] = [:]
  private var errors: [ConfigurationError] = []
  private var warnings: [ConfigurationError] = []
  /// Paths of the settings with an invalid value. These settings keep their defaults.
  private var failed: Set<String> = []
  /// Whether a part of the file could not be read as settings. A setting that was not found may be in that part.
  private var hasUnreadableParts = false

  private init(
    environment: [String: String], ignored: Set<String>, paths: PathResolver, readFile: @escaping FileReader
  ) {
    self.environment = environment
    self.ignored = ignored
    self.readFile = readFile
    self.paths = paths
    references = SecretReferenceReader(environment: environment, readFile: readFile, paths: paths)
  }

  /// - Parameter flags: the names of the flags, without dashes, and their values, in order. If the flag of a list is
  ///   repeated, each occurrence adds an element.
  package static func load(
    file: String?, environment: [String: String], flags: [(name: String, value: String)], readFile: @escaping FileReader
  ) throws(ConfigurationErrors) -> Outcome {
    let outcome = read(file: file, environment: environment, flags: flags, readFile: readFile)
    try outcome.check()
    return outcome
  }

  /// Like `load`, but errors are in the outcome. Settings with a path in `ignored` are not read.
  ///
  /// - Parameters:
  ///   - profile: a built-in profile, whose settings the file overrides.
  ///   - assignments: paths of settings and their values, as texts in the format of an environment variable.
  ///   - paths: the folders by which relative paths of files are made absolute; nil if paths are not changed.
  package static func read(
    profile: BuiltIn? = nil, file: String?, environment: [String: String],
    assignments: [(path: String, value: String)] = [], flags: [(name: String, value: String)],
    ignored: Set<String> = [], paths: ConfigurationPaths? = nil, readFile: @escaping FileReader
  ) -> Outcome {
    var loader = ConfigurationLoader(
      environment: environment, ignored: ignored, paths: PathResolver(paths, file: file), readFile: readFile)
    if let profile { loader.addLayer { $0.apply(document: profile.text, named: profile.title) } }
    if let file { loader.addLayer { $0.apply(file: file) } }
    loader.addLayer { $0.applyEnvironment() }
    loader.addLayer { $0.apply(assignments: assignments) }
    loader.addLayer { $0.apply(flags: flags) }
    if let profile { loader.replaceCredential(of: profile) }
    return loader.validated()
  }

  /// A credential has one source. If a later layer sets a source, the source of the built-in profile is not used.
  private mutating func replaceCredential(of profile: BuiltIn) {
    let prefix = "upstream.credential."
    let set = ["env", "file", "command"].filter { origins[prefix + $0] != nil }
    let own = set.filter { origins[prefix + $0]?.hasPrefix(profile.title + ":") == true }
    guard own.count < set.count else { return }
    let defaults = CredentialUse()
    for key in own {
      (origins[prefix + key], written[prefix + key]) = (nil, nil)
      switch key {
      case "env": settings.session.upstream.conventions.credential.environmentVariable = defaults.environmentVariable
      case "file": settings.session.upstream.conventions.credential.file = defaults.file
      default: settings.session.upstream.conventions.credential.command = defaults.command
      }
    }
  }

  /// Applies a layer. If it sets the URL or its source, the URL and the source of earlier layers are not used.
  private mutating func addLayer(_ apply: (inout Self) -> Void) {
    let before = Self.urlKeys.map { origins[$0] }
    apply(&self)
    let own = zip(Self.urlKeys, before).filter { origins[$0] != $1 }.map(\.0)
    // An empty URL, for example from an empty variable, counts as no URL.
    if own.contains("upstream.url"), settings.session.upstream.url != nil {
      // The pointer and the timeout belong to the source. Without a source, they would be errors.
      for key in Self.urlKeys where !own.contains(key) { resetURL(key) }
    } else if own.contains("upstream.url.file") || own.contains("upstream.url.command") {
      for key in ["upstream.url", "upstream.url.file", "upstream.url.command"] where !own.contains(key) {
        resetURL(key)
      }
    }
  }

  private static var urlKeys: [String] {
    ["upstream.url"] + ["file", "command", "timeout", "pointer", "error"].map { "upstream.url.\($0)" }
  }

  /// Sets a key of the URL to its default.
  private mutating func resetURL(_ key: String) {
    guard origins[key] != nil else { return }
    (origins[key], written[key]) = (nil, nil)
    let defaults = URLSource()
    switch key {
    case "upstream.url": settings.session.upstream.url = nil
    case "upstream.url.file": settings.session.upstream.urlSource.file = defaults.file
    case "upstream.url.command": settings.session.upstream.urlSource.command = defaults.command
    case "upstream.url.timeout": settings.session.upstream.urlSource.timeout = defaults.timeout
    case "upstream.url.pointer": settings.session.upstream.urlSource.pointer = defaults.pointer
    default: settings.session.upstream.urlSource.errorPointer = defaults.errorPointer
    }
  }

  /// Records an error in a part of the file that cannot be read as settings.
  mutating func fail(_ place: String, _ message: @autoclosure () -> String) {
    hasUnreadableParts = true
    // Errors beyond the limit are not shown, so their messages are not created.
    guard errors.count < ConfigurationErrors.limit else { return }
    fail(ConfigurationError(place: place, message: message()))
  }

  mutating func fail(_ error: ConfigurationError) {
    guard errors.count < ConfigurationErrors.limit else { return }
    errors.append(error)
  }

  /// Records that the value of `setting` is invalid.
  mutating func fail(_ setting: Setting, _ error: ConfigurationError) {
    failed.insert(setting.path)
    fail(error)
  }

  mutating func warn(_ warning: ConfigurationError) {
    guard warnings.count < ConfigurationErrors.limit else { return }
    warnings.append(warning)
  }

  // MARK: File

  private mutating func apply(file: String) {
    guard let text = readFile(file) else {
      fail(file, "cannot be read")
      return
    }
    paths.isInFile = true
    defer { paths.isInFile = false }
    apply(document: text, named: file)
  }

  private mutating func apply(document text: [UInt8], named name: String) {
    do throws(ConfigurationError) {
      guard let root = try YAMLDocument.read(text, file: name, warn: { warn($0) }) else { return }
      walk(root, Section(settings: Setting.all), name)
    } catch {
      hasUnreadableParts = true
      fail(error)
    }
  }

  mutating func apply(_ node: YAMLNode, to setting: Setting, _ file: String) {
    if ignored.contains(setting.path) { return }
    let place = node.place(in: file)
    if case .scalar(let text) = node.value, node.isNull, !text.isEmpty {
      let message = "has no value: remove the key to use the default, or quote '\(text)' to use it as text"
      fail(setting, ConfigurationError(place: place, message: "'\(setting.path)' \(message)"))
      return
    }
    if setting.isStructured {
      set(setting, node, place) { $0.place(in: file) }
      return
    }
    var values: [WrittenValue] = []
    do throws(ConfigurationError) {
      switch node.value {
      case .scalar(let text):
        if setting.isList, text.isEmpty { break }
        values = [try read(text, for: setting, place)]
      case .sequence(let items):
        for item in items {
          guard case .scalar(let text) = item.value else {
            throw ConfigurationError(place: place, message: "'\(setting.path)' must be a list of plain values")
          }
          values.append(try read(text, for: setting, item.place(in: file)))
        }
      case .mapping(let pairs): values = try read(pairs, for: setting, place, file)
      case .binary:
        throw ConfigurationError(place: place, message: "'\(setting.path)' \(StructureReader.noBinary)")
      }
    } catch {
      fail(setting, error)
      return
    }
    if case .scalar = node.value, !setting.isList {
      set(setting, values, isSingle: true, place)
    } else {
      set(setting, values, isSingle: false, place)
    }
  }

  private func read(
    _ pairs: [(key: YAMLNode, value: YAMLNode)], for setting: Setting, _ place: String, _ file: String
  ) throws(ConfigurationError) -> [WrittenValue] {
    guard setting.isMapping else {
      throw ConfigurationError(
        place: place, message: "'\(setting.path)' must not have keys: use \(setting.expectation)")
    }
    var values: [WrittenValue] = []
    var seen: Set<String> = []
    for (key, value) in pairs {
      guard case .scalar(let name) = key.value, case .scalar(let text) = value.value else {
        throw ConfigurationError(place: place, message: "'\(setting.path)' must have plain names and values")
      }
      guard seen.insert(name).inserted else {
        throw ConfigurationError(place: key.place(in: file), message: "'\(name)' is set twice in '\(setting.path)'")
      }
      let content = try read(text, for: setting, value.place(in: file))
      values.append(
        WrittenValue(value: "\(name): \(content.value)", text: "\(name): \(text)", place: key.place(in: file)))
    }
    return values
  }

  /// Returns `text` with its references replaced.
  func read(_ text: String, for setting: Setting, _ place: String) throws(ConfigurationError) -> WrittenValue {
    let value = try references.resolve(text, at: place, isSecret: setting.isSecret || setting.isURL)
    guard setting.isPath else { return value }
    return WrittenValue(value: paths.absolute(value.value, at: place), text: value.text, place: place)
  }

  mutating func set(_ setting: Setting, _ values: [WrittenValue], isSingle: Bool, _ place: String) {
    do throws(InvalidValue) {
      switch setting.shape {
      case .scalar(let read):
        guard isSingle, let value = values.first else { throw InvalidValue() }
        try read(value.value, &settings)
      case .list(_, let read): try read(values.map(\.value), &settings)
      case .structure: preconditionFailure("'\(setting.path)' is made of YAML")
      }
      origins[setting.path] = place
      written[setting.path] = values
    } catch {
      // If the setting is a list, `error.index` is the index of the invalid element. If the setting is not a list, all
      // values together are invalid.
      let invalidValue = setting.isList && error.index < values.count ? values[error.index] : nil
      let word = values.count == 1 ? values.first?.value ?? "" : ""
      let reason = error.reason ?? "use \(setting.expectation)\(setting.suggestion(for: word))"
      let shown = setting.errorText(for: invalidValue.map { [$0] } ?? values)
      fail(
        setting,
        ConfigurationError(
          place: invalidValue?.place ?? place, message: "\(shown) is not valid for '\(setting.path)': \(reason)"))
    }
  }

  mutating func set(
    _ setting: Setting, _ node: YAMLNode, _ origin: String, _ place: @escaping (YAMLNode) -> String
  ) {
    guard case .structure(_, let read) = setting.shape else {
      preconditionFailure("'\(setting.path)' is a plain value")
    }
    do throws(ConfigurationError) {
      try read(
        StructureReader(environment: environment, readFile: readFile, paths: paths, place: place), node, &settings)
      origins[setting.path] = origin
    } catch {
      fail(setting, error)
    }
  }

  /// Adds a named session. Returns false if there are too many sessions.
  mutating func add(session name: String, at place: String) -> Bool {
    guard settings.sessions.count < SessionName.maximumCount else { return false }
    let session = GatewaySettings.NamedSession(name: name)
    settings.add(session)
    groupPlaces[session.pathPrefix] = place
    return true
  }

  /// Adds a profile. Returns false if there are too many profiles.
  mutating func add(profile name: String, at place: String) -> Bool {
    guard settings.profiles.count < ProfileName.maximumCount else { return false }
    let profile = SessionProfile(name: name)
    settings.add(profile)
    groupPlaces[profile.pathPrefix] = place
    return true
  }

  // MARK: Validation

  /// Checks the constraints between settings and returns the outcome.
  private mutating func validated() -> Outcome {
    let sections = SettingSection.all(of: settings)
    for section in sections { apply(section.orders, of: section) }
    let sessions =
      [("", settings.session)] + settings.sessions.map { ($0.pathPrefix, $0.configuration) }
      + settings.profiles.map { ($0.pathPrefix, $0.configuration) }
    for (prefix, session) in sessions {
      checkCredential(session.upstream, prefix)
      checkTLSFiles(session.upstream, prefix)
    }
    for warning in paths.warnings { warn(warning) }
    warnOfMissingDefault()
    warnOfMissingPrincipals()
    let outcome = Outcome(
      settings: settings, origins: origins, groupPlaces: groupPlaces, errors: errors, warnings: warnings,
      written: written, failed: failed, hasUnreadableParts: hasUnreadableParts)
    let problems = sections.flatMap { $0.rules.flatMap { $0.problems(settings) } } + missingURLs()
    return problems.isEmpty ? outcome : outcome.adding(SettingProblems(problems))
  }

  private mutating func apply(_ orders: [SettingOrder], of section: SettingSection) {
    for order in orders where !failed.contains(order.lower) && !failed.contains(order.upper) {
      guard let error = order.apply(to: &settings, section.settings + Setting.all, origins: origins) else { continue }
      if order.isWarning { warn(error) } else { fail(error) }
    }
  }

  /// Reports an environment variable that a credential needs and that is missing. The environment does not change, so
  /// every connection attempt would fail.
  private mutating func checkCredential(_ upstream: UpstreamSettings, _ prefix: String) {
    let name = upstream.conventions.credential.environmentVariable
    guard !name.isEmpty, environment[name] == nil else { return }
    let key = prefix + "upstream.credential.env"
    fail(ConfigurationError(place: origins[key] ?? key, message: "environment variable '\(name)' is not set"))
  }

  /// If no URL is `wss`, warns that the files of `upstream.tls` are not checked, since they are not read at the start.
  /// Later, `ca_file` is read if a redirection leads to a `wss` URL.
  private mutating func checkTLSFiles(_ upstream: UpstreamSettings, _ prefix: String) {
    guard upstream.url != nil, !upstream.urls.contains(where: \.isSecure) else { return }
    let unused = "not used and not checked, because no upstream URL is wss://"
    for (name, value, isUsedByRedirections) in [
      ("ca_file", upstream.tls.trust.caFile ?? "", true), ("client_certificate", upstream.tls.certificateFile, false),
      ("client_key", upstream.tls.keyFile, false),
    ] where !value.isEmpty {
      let key = prefix + "upstream.tls." + name
      let message = isUsedByRedirections ? unused + "; it is read only if a redirection leads to a wss:// URL" : unused
      warn(ConfigurationError(place: origins[key] ?? "", message: "'\(key)' is \(message)"))
    }
  }

  /// If there are named sessions or profiles, the default session is optional. Warns if settings of the default session
  /// were set although there is none, since these settings have no effect.
  private mutating func warnOfMissingDefault() {
    guard !settings.session.upstream.hasURL, !settings.sessions.isEmpty || !settings.profiles.isEmpty,
      !failed.contains(where: Self.isURL), !ignored.contains("upstream.url")
    else { return }
    for setting in SettingSection.ofDefaultSession where !Self.isURL(setting.path) {
      guard let place = origins[setting.path] else { continue }
      let reason =
        "'upstream.url' is not set, so there is no default session, and named sessions and profiles do not inherit its settings"
      warn(ConfigurationError(place: place, message: "'\(setting.path)' has no effect: \(reason)"))
    }
  }

  /// Whether `path` is the URL of the default session or a key of it.
  private static func isURL(_ path: String) -> Bool { path == "upstream.url" || path.hasPrefix("upstream.url.") }

  /// Warns if limits for principals were set without authentication. All clients would be one principal, so these
  /// limits are not applied.
  private mutating func warnOfMissingPrincipals() {
    guard !settings.authentication.isConfigured, failed.isEmpty else { return }
    let defaults = GatewaySettings()
    for setting in Setting.all where setting.path.hasPrefix("limits.principal.") {
      guard let place = origins[setting.path], setting.format(settings) != setting.format(defaults) else { continue }
      let reason = "the limit needs authentication; 'limits.address' applies to clients without authentication"
      warn(ConfigurationError(place: place, message: "'\(setting.path)' has no effect: \(reason)"))
    }
  }

  private func missingURLs() -> [SettingProblem] {
    settings.sessions.filter { !$0.configuration.upstream.hasURL }.map {
      SettingProblem("sessions.\($0.name).upstream.url", .missing, "every named session needs a URL")
    }
  }
}

extension YAMLNode {
  func place(in file: String) -> String { "\(file):\(line):\(column)" }
}
