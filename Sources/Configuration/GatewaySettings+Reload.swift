import Sessions
import Upstream

/// Applies new settings to a running process.
extension GatewaySettings {
  /// Returns the settings that are in effect after a reload, and the paths of the changed settings that require a
  /// restart. A setting that requires a restart keeps its value from `old`. Sessions are neither added nor removed.
  package func effective(after old: GatewaySettings) -> (settings: GatewaySettings, requiringRestart: [String]) {
    var effective = self
    var requiringRestart: [String] = []
    let hasDefault = session.upstream.hasURL
    if hasDefault != old.session.upstream.hasURL {
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

  /// Checks the constraints between settings. The loader has checked the values of the configuration. A reload checks
  /// again, because it combines these values with old values of the settings that require a restart.
  package func check() throws(SettingProblems) {
    let sections = SettingSection.all(of: self)
    let problems =
      sections.flatMap { $0.rules.flatMap { $0.problems(self) } }
      + sections.flatMap { $0.orders.compactMap { $0.problem(in: self) } }
    guard problems.isEmpty else { throw SettingProblems(problems) }
  }
}
