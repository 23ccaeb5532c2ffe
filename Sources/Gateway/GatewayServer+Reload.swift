import Configuration
import Logging
import Reactor
import Sessions
import Upstream
import UpstreamSession

/// SIGHUP: the configuration is read again.
extension GatewayServer {
  /// What of `settings` differs from `old` and can change while the process runs goes into effect: of each session all of `upstream`
  /// but its queue, by a new connection beside the old one, and `log.level`. The rest is named in the log, since it needs a restart.
  func reload(_ settings: GatewaySettings, from old: GatewaySettings) -> GatewaySettings {
    let (effective, stale) = settings.effective(after: old)
    if !stale.isEmpty {
      logger.warning("some changed settings need a restart", [.text("settings", stale.joined(separator: ", "))])
    }
    do throws(SettingProblems) {
      // The queue stays as it was, and may not go with what is new.
      let plan = try GatewayPlan(effective)
      let before = old.configuredSessions
      for (planned, new) in zip(plan.sessions, effective.configuredSessions) {
        let isSame = before.first { $0.name == new.name }?.configuration.upstream == new.configuration.upstream
        sessions.find(planned.name)?.upstream.reconfigure(
          planned.settings, because: isSame ? .credential : .configuration)
      }
      logger.level = effective.log.level
      logger.info("the configuration was read again", [.flag("changed", effective != old)])
      return effective
    } catch {
      logger.error("the new configuration cannot be used; the old one stays", [.text("reason", error.description)])
      return old
    }
  }
}
