import Sessions
import Upstream

/// Declares settings, orders and rules for one part of the settings. `Root` is the type that stores their values.
struct SettingScope<Root> {
  /// The prefix of the paths: `upstream.tls.`, or `sessions.NAME.upstream.tls.` for a named session.
  let prefix: String
  let root: WritableKeyPath<GatewaySettings, Root>
  /// Whether the settings have flags. The settings of a named session have no flags.
  var hasFlags = true
  /// Whether a reload can change the settings without a restart.
  var isReloadable = false

  /// Returns the scope of the section `name`, whose values are in `part`.
  func section<Part>(
    _ name: String, _ part: WritableKeyPath<Root, Part>, isReloadable: Bool? = nil
  ) -> SettingScope<Part> {
    SettingScope<Part>(
      prefix: prefix + name + ".", root: root.appending(path: part), hasFlags: hasFlags,
      isReloadable: isReloadable ?? self.isReloadable)
  }

  /// Declares a setting.
  func callAsFunction<Value>(
    _ name: String, _ value: WritableKeyPath<Root, Value>, _ form: ValueFormat<Value>, _ summary: String,
    flag: String? = nil, isSecret: Bool = false, isReloadable: Bool? = nil
  ) -> Setting {
    Setting(
      prefix + name, root.appending(path: value), form, summary, flag: hasFlags ? flag : nil, isSecret: isSecret,
      isReloadable: isReloadable ?? self.isReloadable)
  }

  /// Declares that `lower` must not be above `upper`.
  func order<Value: Comparable>(
    _ lower: String, _ lowerValue: WritableKeyPath<Root, Value>,
    _ upper: String, _ upperValue: WritableKeyPath<Root, Value>, _ reason: String, isWarning: Bool = false,
    where applies: @escaping (Root) -> Bool = { _ in true }
  ) -> SettingOrder {
    let root = self.root
    return SettingOrder(
      lower: prefix + lower, upper: prefix + upper, reason: reason, isWarning: isWarning,
      isSatisfied: {
        !applies($0[keyPath: root]) || $0[keyPath: root][keyPath: lowerValue] <= $0[keyPath: root][keyPath: upperValue]
      },
      lowerToUpper: { $0[keyPath: root][keyPath: lowerValue] = $0[keyPath: root][keyPath: upperValue] })
  }

  /// Declares that a value of `lower` above `upper` has no effect, where `upper` is a setting of the process.
  func order<Value: Comparable>(
    _ lower: String, _ lowerValue: WritableKeyPath<Root, Value>,
    ofProcess upper: String, _ upperValue: KeyPath<GatewaySettings, Value>, _ reason: String
  ) -> SettingOrder {
    let root = self.root
    return SettingOrder(
      lower: prefix + lower, upper: upper, reason: reason, isWarning: true,
      isSatisfied: { $0[keyPath: root][keyPath: lowerValue] <= $0[keyPath: upperValue] },
      lowerToUpper: { _ in })
  }

  /// Declares a constraint of another kind. `problems` returns the violations, whose keys have no prefix.
  func rule(_ problems: @escaping (Root) -> [SettingProblem]) -> SettingRule {
    let (prefix, root) = (prefix, root)
    return SettingRule { settings in
      problems(settings[keyPath: root]).map { $0.prefixed(prefix) }
    }
  }
}

/// A constraint between settings that is not an order. It is checked when all settings have been read.
struct SettingRule {
  let problems: (GatewaySettings) -> [SettingProblem]
}

/// Settings of one section, and the constraints between them.
struct SettingSection {
  var settings: [Setting]
  var orders: [SettingOrder] = []
  var rules: [SettingRule] = []
}

extension SettingSection {
  /// The sections at the top level of the file, in the order of the file: the sections of the process, and the sections
  /// of the session `default`. The array is computed on each access, because key paths cannot be used by several
  /// threads.
  static var all: [SettingSection] {
    let gateway = SettingScope<GatewaySettings>(prefix: "", root: \.self)
    let session = gateway.section(\.session, isReloadable: true)
    return [general(gateway), access(gateway), http(gateway), limits(gateway), dials(gateway)]
      + self.session(session)
      + [
        delivery(gateway), webhooks(session), createdSessions(gateway), store(gateway), shutdownAndLog(gateway),
      ]
  }

  /// All sections, including the sections of named sessions.
  static func all(of settings: GatewaySettings) -> [SettingSection] {
    all + settings.sessions.flatMap { named($0.name) } + settings.profiles.flatMap { profile($0.name) }
  }

  /// The settings in `all` that belong to the session `default`.
  static var ofDefaultSession: [Setting] {
    let session = SettingScope<GatewaySettings>(prefix: "", root: \.self).section(\.session, isReloadable: true)
    return (self.session(session) + [webhooks(session)]).flatMap(\.settings)
  }

  /// Returns the sections of the session `name` below `sessions`.
  static func named(_ name: String) -> [SettingSection] {
    let session = SettingScope<SessionConfiguration>(
      prefix: "sessions.\(name).", root: \.[named: name], hasFlags: false, isReloadable: true)
    return self.session(session) + [webhooks(session)]
  }

  /// Returns the sections of the profile `name` below `profiles`: the sections of a session, in which the URLs may have
  /// variables, and the sections that only a profile has.
  static func profile(_ name: String) -> [SettingSection] {
    let profile = SettingScope<SessionProfile>(
      prefix: "profiles.\(name).", root: \.[profile: name], hasFlags: false, isReloadable: true)
    var sections = session(profile.section(\.configuration, isReloadable: true))
    let urls = urls(profile)
    for index in sections.indices {
      sections[index].settings = sections[index].settings.map { setting in
        urls.first { $0.path == setting.path } ?? setting
      }
    }
    return [variables(profile)] + sections
  }

  /// Returns the sections that every session and every profile has.
  private static func session(_ session: SettingScope<SessionConfiguration>) -> [SettingSection] {
    let upstream = session.section("upstream", \.upstream)
    return [
      connection(upstream), security(upstream), liveness(upstream), socketIO(upstream), conventions(upstream),
      queue(upstream),
      retention(session.section("delivery", \.retention)),
    ]
  }
}

extension SettingScope {
  /// Returns a scope with the same paths, whose values are in `part`.
  fileprivate func section<Part>(_ part: WritableKeyPath<Root, Part>, isReloadable: Bool) -> SettingScope<Part> {
    SettingScope<Part>(
      prefix: prefix, root: root.appending(path: part), hasFlags: hasFlags, isReloadable: isReloadable)
  }
}

extension Setting {
  /// All settings at the top level of the file, in the order of the file.
  package static var all: [Setting] { SettingSection.all.flatMap(\.settings) }

  /// Returns the settings of a named session.
  static func named(_ name: String) -> [Setting] { SettingSection.named(name).flatMap(\.settings) }

  /// Returns the settings of a profile.
  static func profile(_ name: String) -> [Setting] { SettingSection.profile(name).flatMap(\.settings) }

  /// All settings, including the settings of named sessions. Settings of profiles are left out, since they apply to new
  /// sessions only and a reload can change all of them.
  package static func all(of settings: GatewaySettings) -> [Setting] {
    all + settings.sessions.flatMap { named($0.name) }
  }
}
