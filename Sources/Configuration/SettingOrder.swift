/// The constraint that the value of a setting must not be above the value of another setting.
///
/// If only the upper setting is set, to a value below the default of the lower setting, the lower setting gets that
/// value instead of its default. If the lower setting is set to a larger value than the upper setting, that is an
/// error. Settings that limit different things (`http.connections` and `http.connections_per_address`) have no order.
struct SettingOrder {
  let lower: String
  let upper: String
  /// The reason for the constraint, for the text of the error.
  let reason: String
  /// Whether a violation is only a warning, because a larger value of the lower setting has no effect and does no harm.
  let isWarning: Bool
  let isSatisfied: (GatewaySettings) -> Bool
  let lowerToUpper: (inout GatewaySettings) -> Void

  /// Returns the problem if complete settings violate the constraint, otherwise nil.
  func problem(in settings: GatewaySettings) -> SettingProblem? {
    isWarning || isSatisfied(settings) ? nil : SettingProblem(lower, .none, "it is above '\(upper)': \(reason)")
  }

  /// Applies the constraint to `settings`. Returns the error or warning, if there is one.
  ///
  /// - Parameters:
  ///   - all: the settings of the section and of the process.
  ///   - origins: the places of the settings that were set, by path.
  func apply(
    to settings: inout GatewaySettings, _ all: @autoclosure () -> [Setting], origins: [String: String]
  ) -> ConfigurationError? {
    guard !isSatisfied(settings) else { return nil }
    guard let place = origins[lower] else {
      if !isWarning { lowerToUpper(&settings) }
      return nil
    }
    let all = all()
    let shown = { [settings] (path: String) in
      let value = all.first { $0.path == path }?.format(settings) ?? ""
      return "'\(path)' (\(value)\(origins[path] == nil ? ", the default" : ""))"
    }
    return ConfigurationError(place: place, message: "\(shown(lower)) is above \(shown(upper)): \(reason)")
  }
}
