/// A part of the settings for which a table declares settings, orders and rules: `Root` is the type that holds the values.
struct SettingScope<Root> {
  /// What the paths begin with: `upstream.tls.`, and `sessions.NAME.upstream.tls.` for a named session.
  let prefix: String
  let root: WritableKeyPath<GatewaySettings, Root>
  /// Whether flags set it. Those of a named session are set by the file alone.
  var hasFlags = true
  /// Whether a reload changes it while the process runs.
  var isReloadable = false

  /// The section `name`, whose values are in `part`.
  func section<Part>(
    _ name: String, _ part: WritableKeyPath<Root, Part>, isReloadable: Bool? = nil
  ) -> SettingScope<Part> {
    SettingScope<Part>(
      prefix: prefix + name + ".", root: root.appending(path: part), hasFlags: hasFlags,
      isReloadable: isReloadable ?? self.isReloadable)
  }

  /// Declares a setting.
  func callAsFunction<Value>(
    _ name: String, _ value: WritableKeyPath<Root, Value>, _ form: ValueForm<Value>, _ summary: String,
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
      isMet: {
        !applies($0[keyPath: root]) || $0[keyPath: root][keyPath: lowerValue] <= $0[keyPath: root][keyPath: upperValue]
      },
      lowerDefault: { $0[keyPath: root][keyPath: lowerValue] = $0[keyPath: root][keyPath: upperValue] })
  }

  /// Declares what else must hold. `problems` gets the values, and gives keys without the prefix.
  func rule(_ problems: @escaping (Root) -> [SettingProblem]) -> SettingRule {
    let (prefix, root) = (prefix, root)
    return SettingRule { settings in
      problems(settings[keyPath: root]).map { $0.prefixed(prefix) }
    }
  }
}

/// What must hold between settings, besides an order. It is asked when all are read.
struct SettingRule {
  let problems: (GatewaySettings) -> [SettingProblem]
}

/// Settings that belong together, with what must hold between them.
struct SettingSection {
  var settings: [Setting]
  var orders: [SettingOrder] = []
  var rules: [SettingRule] = []
}

extension SettingSection {
  /// What is set at the top of the file, in its order: the settings of the process, and those of the session `default`.
  /// (Worked out when asked for: key paths cannot be shared between threads.)
  static var all: [SettingSection] {
    let gateway = SettingScope<GatewaySettings>(prefix: "", root: \.self)
    return [general(gateway), http(gateway), dials(gateway)] + session(gateway.section(\.session, isReloadable: true))
      + [delivery(gateway), ending(gateway)]
  }

  /// Every section there is with these sessions.
  static func all(of settings: GatewaySettings) -> [SettingSection] {
    all + settings.sessions.flatMap { named($0.name) }
  }

  /// Of `all`, what is set for the session `default`.
  static var ofDefaultSession: [Setting] {
    session(SettingScope<GatewaySettings>(prefix: "", root: \.self).section(\.session, isReloadable: true))
      .flatMap(\.settings)
  }

  /// What is set for the session `name` below `sessions`.
  static func named(_ name: String) -> [SettingSection] {
    session(
      SettingScope(prefix: "sessions.\(name).", root: \.[named: name], hasFlags: false, isReloadable: true))
  }

  /// What every session has.
  private static func session(_ session: SettingScope<SessionConfiguration>) -> [SettingSection] {
    let upstream = session.section("upstream", \.upstream)
    return [
      connection(upstream), security(upstream), liveness(upstream), conventions(upstream), queue(upstream),
      retention(session.section("delivery", \.retention, isReloadable: false)),
    ]
  }
}

extension SettingScope {
  /// The same paths, with the values in `part`.
  fileprivate func section<Part>(_ part: WritableKeyPath<Root, Part>, isReloadable: Bool) -> SettingScope<Part> {
    SettingScope<Part>(
      prefix: prefix, root: root.appending(path: part), hasFlags: hasFlags, isReloadable: isReloadable)
  }
}

extension Setting {
  /// Every setting of the top of the file, in its order.
  package static var all: [Setting] { SettingSection.all.flatMap(\.settings) }

  /// Those of a named session.
  static func named(_ name: String) -> [Setting] { SettingSection.named(name).flatMap(\.settings) }

  /// Every setting there is with these sessions.
  package static func all(of settings: GatewaySettings) -> [Setting] {
    all + settings.sessions.flatMap { named($0.name) }
  }
}
