import Configuration
import Logging
import Reactor
import Sessions
import Upstream
import Upstream
import UpstreamSession

/// SIGHUP: the configuration is read again.
extension GatewayServer {
  /// What of `settings` differs from `old` and can change while the process runs goes into effect: all of `upstream` but its
  /// queue, by a new connection beside the old one, and `log.level`. The rest is named in the log, since it needs a restart.
  func reload(_ settings: GatewaySettings, from old: GatewaySettings) -> GatewaySettings {
    var effective = old
    effective.upstream = settings.upstream
    effective.upstream.queue = old.upstream.queue
    effective.log.level = settings.log.level
    let stale = Setting.all.filter { $0.show(effective) != $0.show(settings) }.map(\.path)
    if !stale.isEmpty {
      logger.warning("some changed settings need a restart", [.text("settings", stale.joined(separator: ", "))])
    }
    do throws(SettingProblems) {
      // The queue stays as it was, and may not go with what is new.
      let plan = try GatewayPlan(effective)
      let reason: ReplacementReason = effective.upstream == old.upstream ? .credential : .configuration
      for planned in plan.sessions {
        sessions.find(planned.name)?.upstream.reconfigure(planned.settings, because: reason)
      }
      if let level = LogLevel(name: settings.log.level) { logger.level = level }
      logger.info("the configuration was read again", [.flag("changed", effective != old)])
      return effective
    } catch {
      logger.error("the new configuration cannot be used; the old one stays", [.text("reason", error.description)])
      return old
    }
  }
}
