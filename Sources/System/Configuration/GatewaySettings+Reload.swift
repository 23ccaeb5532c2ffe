/// Applies new settings to a running process.
extension GatewaySettings {
  /// Returns these settings as far as they can replace `old` without a restart, and the paths of the settings that
  /// require a restart. Sessions are neither added nor removed.
  package func effective(after old: GatewaySettings) -> (settings: GatewaySettings, requiringRestart: [String]) {
    var effective = self
    var requiringRestart: [String] = []
    let hasDefault = session.upstream.url != nil
    if hasDefault != (old.session.upstream.url != nil) {
      requiringRestart.append("upstream.url")
      effective.session = old.session
    }
    let names = Set(sessions.map(\.name))
    effective.keepSessions(of: old)
    let oldNames = Set(old.sessions.map(\.name))
    requiringRestart +=
      (sessions.filter { !oldNames.contains($0.name) } + old.sessions.filter { !names.contains($0.name) })
      .map { "sessions." + $0.name }
    for setting in Setting.all(of: effective) where !setting.isReloadable {
      if setting.format(effective) != setting.format(old) { requiringRestart.append(setting.path) }
      setting.copy(old, &effective)
    }
    return (effective, requiringRestart)
  }

  /// Checks the constraints between settings. The loader checks the values as written. A reload checks again, because
  /// it combines new values with old values of the settings that require a restart.
  package func check() throws(SettingProblems) {
    let sections = SettingSection.all(of: self)
    let problems =
      sections.flatMap { $0.rules.flatMap { $0.problems(self) } }
      + sections.flatMap { $0.orders.compactMap { $0.problem(in: self) } }
    guard problems.isEmpty else { throw SettingProblems(problems) }
  }
}
