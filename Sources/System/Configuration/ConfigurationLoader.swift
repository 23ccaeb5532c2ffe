import ByteStreams
import UpstreamProtocol

/// Puts the settings together: defaults, then the file, then the environment, then the flags. Everything wrong is found in
/// one go: what is made from the settings later (`GatewayPlan`) adds its errors to these (`Outcome.errors(with:)`).
package struct ConfigurationLoader {
  /// Reads a file; nil where it cannot be read. Handed in, so that this stays free of the file system.
  package typealias FileReader = (String) -> [UInt8]?

  /// Bytes of a configuration file.
  package static let maximumFileBytes = YAMLDocument.maximumBytes

  let environment: [String: String]
  let readFile: FileReader
  private let references: SecretReferenceReader
  private var settings = GatewaySettings()
  private var origins: [String: String] = [:]
  private var written: [String: [WrittenValue]] = [:]
  private var errors: [ConfigurationError] = []
  private var warnings: [ConfigurationError] = []
  /// The settings whose value could not be used; they have their defaults.
  private var failed: Set<String> = []
  /// Whether a part of the file could not be read as settings. What is not set may have been meant there.
  private var hasUnreadParts = false

  package init(environment: [String: String], readFile: @escaping FileReader) {
    self.environment = environment
    self.readFile = readFile
    references = SecretReferenceReader(environment: environment, readFile: readFile)
  }

  /// `flags`: name without dashes and value, in order; a repeated list flag adds up.
  package static func load(
    file: String?, environment: [String: String], flags: [(name: String, value: String)], readFile: @escaping FileReader
  ) throws(ConfigurationErrors) -> Outcome {
    let outcome = read(file: file, environment: environment, flags: flags, readFile: readFile)
    try outcome.check()
    return outcome
  }

  /// As `load`, but what is wrong is in the outcome.
  package static func read(
    file: String?, environment: [String: String], flags: [(name: String, value: String)], readFile: @escaping FileReader
  ) -> Outcome {
    var loader = ConfigurationLoader(environment: environment, readFile: readFile)
    if let file { loader.apply(file: file) }
    loader.applyEnvironment()
    loader.apply(flags: flags)
    loader.checkCredential()
    loader.checkOrders()
    loader.checkTLS()
    return Outcome(
      settings: loader.settings, origins: loader.origins, errors: loader.errors, warnings: loader.warnings,
      written: loader.written, failed: loader.failed, hasUnreadParts: loader.hasUnreadParts)
  }

  /// A part of the file cannot be read as settings.
  private mutating func fail(_ place: String, _ message: @autoclosure () -> String) {
    hasUnreadParts = true
    // An error that is not shown needs no message.
    guard errors.count < ConfigurationErrors.limit else { return }
    fail(ConfigurationError(place: place, message: message()))
  }

  mutating func fail(_ error: ConfigurationError) {
    guard errors.count < ConfigurationErrors.limit else { return }
    errors.append(error)
  }

  /// The value of `setting` cannot be used.
  mutating func fail(_ setting: Setting, _ error: ConfigurationError) {
    failed.insert(setting.path)
    fail(error)
  }

  mutating func warn(_ warning: ConfigurationError) {
    guard warnings.count < ConfigurationErrors.limit else { return }
    warnings.append(warning)
  }

  /// A variable that is not there now will not be there at a dial either.
  private mutating func checkCredential() {
    let name = settings.upstream.conventions.credential.environmentVariable
    guard !name.isEmpty, environment[name] == nil else { return }
    let place = origins["upstream.credential.env"] ?? "upstream.credential.env"
    fail(ConfigurationError(place: place, message: "the environment has no variable '\(name)'"))
  }

  private mutating func checkOrders() {
    for order in SettingOrder.all where !failed.contains(order.lower) && !failed.contains(order.upper) {
      guard let error = order.apply(to: &settings, origins: origins) else { continue }
      if order.isWarning { warn(error) } else { fail(error) }
    }
  }

  /// Without a `wss` URL no TLS file is read, and so none is checked.
  private mutating func checkTLS() {
    let urls = [settings.upstream.url] + settings.upstream.fallbackURLs
    guard !settings.upstream.url.isEmpty, !urls.contains(where: { $0.lowercased().hasPrefix("wss:") }) else { return }
    let tls = settings.upstream.tls
    let unused = "not used and not checked: no upstream URL is wss"
    for (name, value, isUsedByRedirections) in [
      ("ca_file", tls.caFile, true), ("client_certificate", tls.clientCertificate, false),
      ("client_key", tls.clientKey, false),
    ] where !value.isEmpty {
      let key = "upstream.tls." + name
      let message = isUsedByRedirections ? unused + ", and it is read only if a redirection leads to one" : unused
      warn(ConfigurationError(place: origins[key] ?? "", message: "'\(key)' is \(message)"))
    }
  }

  // MARK: File

  private mutating func apply(file: String) {
    guard let text = readFile(file) else {
      fail(file, "cannot be read")
      return
    }
    do throws(ConfigurationError) {
      guard let root = try YAMLDocument.read(text, file: file) else { return }
      walk(root, path: "", Setting.all, file)
    } catch {
      hasUnreadParts = true
      fail(error)
    }
  }

  private mutating func walk(_ node: YAMLNode, path: String, _ all: [Setting], _ file: String) {
    // A section whose lines are all commented out.
    if node.isNull { return }
    guard case .mapping(let pairs) = node.value else {
      let name = path.isEmpty ? "the file" : "'\(path)'"
      fail(node.place(in: file), "\(name) must hold keys and values, as in 'key: value'")
      return
    }
    var seen: Set<String> = []
    let prefix = path.isEmpty ? "" : path + "."
    let known = childNames(of: prefix, all)
    for (key, value) in pairs {
      guard case .scalar(let name) = key.value else {
        fail(key.place(in: file), "a key must be a plain word")
        continue
      }
      let full = prefix + name
      guard seen.insert(name).inserted else {
        fail(key.place(in: file), "'\(full)' is set twice")
        continue
      }
      if let setting = all.first(where: { $0.path == full }) {
        apply(value, to: setting, file)
      } else if known.contains(name) {
        walk(value, path: full, all, file)
      } else {
        fail(key.place(in: file), "unknown key '\(full)'\(Self.suggestion(for: name, full, among: known, all))")
      }
    }
  }

  /// A key of the same section that is spelt nearly so, else a setting elsewhere that ends alike.
  private static func suggestion(for name: String, _ full: String, among known: [String], _ all: [Setting]) -> String {
    if let sibling = Suggestion.nearest(to: name, among: known) { return Suggestion.text(sibling) }
    return Suggestion.text(Suggestion.nearest(toName: full, among: all.map(\.path), separator: "."))
  }

  private func childNames(of prefix: String, _ all: [Setting]) -> [String] {
    var names: [String] = []
    for setting in all where setting.path.hasPrefix(prefix) {
      let rest = setting.path.utf8.dropFirst(prefix.utf8.count)
      // What belongs together stands together: nearly always the name is the last one's.
      if let last = names.last, rest.starts(with: last.utf8), rest.dropFirst(last.utf8.count).first == UInt8(ascii: ".")
      {
        continue
      }
      let name = String(decoding: rest.prefix { $0 != UInt8(ascii: ".") }, as: UTF8.self)
      if !names.contains(name) { names.append(name) }
    }
    return names
  }

  private mutating func apply(_ node: YAMLNode, to setting: Setting, _ file: String) {
    let place = node.place(in: file)
    if case .scalar(let text) = node.value, node.isNull, !text.isEmpty {
      let message = "has no value: leave the key out for the default, or quote '\(text)' to mean the text"
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
            throw ConfigurationError(place: place, message: "'\(setting.path)' takes plain values")
          }
          values.append(try read(text, for: setting, item.place(in: file)))
        }
      case .mapping(let pairs): values = try read(pairs, for: setting, place, file)
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
      throw ConfigurationError(place: place, message: "'\(setting.path)' takes \(setting.expectation), not keys")
    }
    var values: [WrittenValue] = []
    var seen: Set<String> = []
    for (key, value) in pairs {
      guard case .scalar(let name) = key.value, case .scalar(let text) = value.value else {
        throw ConfigurationError(place: place, message: "'\(setting.path)' takes plain names and values")
      }
      guard seen.insert(name).inserted else {
        throw ConfigurationError(place: key.place(in: file), message: "'\(name)' stands twice in '\(setting.path)'")
      }
      let content = try read(text, for: setting, value.place(in: file))
      values.append(
        WrittenValue(value: "\(name): \(content.value)", text: "\(name): \(text)", place: key.place(in: file)))
    }
    return values
  }

  /// `text` with its references replaced.
  func read(_ text: String, for setting: Setting, _ place: String) throws(ConfigurationError) -> WrittenValue {
    try references.read(text, at: place, isSecret: setting.isSecret || setting.isURL)
  }

  mutating func set(_ setting: Setting, _ values: [WrittenValue], isSingle: Bool, _ place: String) {
    let worked: Bool
    if isSingle, let value = values.first {
      worked = setting.apply(value.value, to: &settings)
    } else {
      worked = setting.apply(list: values.map(\.value), to: &settings)
    }
    guard !worked else {
      origins[setting.path] = place
      written[setting.path] = values
      return
    }
    // One of a list is at fault, unless the setting takes no list at all.
    let culprit = setting.isList ? values.first { !setting.apply(list: [$0.value], to: &settings) } : nil
    let word = values.count == 1 ? values.first?.value ?? "" : ""
    let message =
      "\(setting.shownInError(culprit.map { [$0] } ?? values)) is not right for '\(setting.path)': "
      + "it takes \(setting.expectation)\(setting.suggestion(for: word))"
    fail(setting, ConfigurationError(place: culprit?.place ?? place, message: message))
  }

  mutating func set(
    _ setting: Setting, _ node: YAMLNode, _ origin: String, _ place: @escaping (YAMLNode) -> String
  ) {
    do throws(ConfigurationError) {
      try StructureReader(environment: environment, readFile: readFile, place: place).set(setting, node, in: &settings)
      origins[setting.path] = origin
    } catch {
      fail(setting, error)
    }
  }
}

extension YAMLNode {
  fileprivate func place(in file: String) -> String { "\(file):\(line):\(column)" }
}
