/// Two settings of which the first must not be above the second.
///
/// Where only the second is set and is below the first's default, the default gives way. Where the first is set, it is an error.
/// Settings that only limit different things (`http.connections` and `http.connections_per_address`) have no order.
struct SettingOrder {
  let lower: String
  let upper: String
  /// Why, as a part of the error.
  let reason: String
  /// Whether the first setting has no effect above the second, which is worth a warning only.
  let isWarning: Bool
  let isMet: (GatewaySettings) -> Bool
  let lowerDefault: (inout GatewaySettings) -> Void

  /// What the order finds wrong in settings that need no defaults any more.
  func problem(in settings: GatewaySettings) -> SettingProblem? {
    isWarning || isMet(settings) ? nil : SettingProblem(lower, .none, "it is above '\(upper)': \(reason)")
  }

  /// Applies the order to `settings`. `all`: the settings of its section; `origins`: where those that were set were set. The error or
  /// warning, if there is one.
  func apply(to settings: inout GatewaySettings, _ all: [Setting], origins: [String: String]) -> ConfigurationError? {
    guard !isMet(settings) else { return nil }
    guard let place = origins[lower] else {
      if !isWarning { lowerDefault(&settings) }
      return nil
    }
    let shown = { [settings] (path: String) in
      let value = all.first { $0.path == path }?.show(settings) ?? ""
      return "'\(path)' (\(value)\(origins[path] == nil ? ", the default" : ""))"
    }
    return ConfigurationError(place: place, message: "\(shown(lower)) is above \(shown(upper)): \(reason)")
  }
}
