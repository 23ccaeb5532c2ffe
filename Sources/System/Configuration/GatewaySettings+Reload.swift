/// What changes while the process runs.
extension GatewaySettings {
  /// These settings as far as they can replace `old` without a restart, and the paths of what needs one. Sessions are neither added
  /// nor removed.
  package func effective(after old: GatewaySettings) -> (settings: GatewaySettings, needingRestart: [String]) {
    var effective = self
    var stale: [String] = []
    let hasDefault = session.upstream.url != nil
    if hasDefault != (old.session.upstream.url != nil) {
      stale.append("upstream.url")
      effective.session = old.session
    }
    let names = Set(sessions.map(\.name))
    effective.sessions = old.sessions.map { running in
      sessions.first { $0.name == running.name } ?? running
    }
    let oldNames = Set(old.sessions.map(\.name))
    stale += (sessions.filter { !oldNames.contains($0.name) } + old.sessions.filter { !names.contains($0.name) })
      .map { "sessions." + $0.name }
    for setting in Setting.all(of: effective) where !setting.isReloadable {
      if setting.show(effective) != setting.show(old) { stale.append(setting.path) }
      setting.copy(old, &effective)
    }
    return (effective, stale)
  }

  /// What must hold between settings and does not. The loader finds it in what is written; a reload asks again, because it mixes new
  /// values with those that need a restart.
  package func check() throws(SettingProblems) {
    let sections = SettingSection.all(of: self)
    let problems =
      sections.flatMap { $0.rules.flatMap { $0.problems(self) } }
      + sections.flatMap { $0.orders.compactMap { $0.problem(in: self) } }
    guard problems.isEmpty else { throw SettingProblems(problems) }
  }
}
