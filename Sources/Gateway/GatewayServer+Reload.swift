import Configuration
import Logging
import Reactor
import Sessions
import Upstream
import UpstreamSession

/// The settings of a process that can read them again.
struct RunningSettings {
  /// What is in effect.
  var effective: GatewaySettings
  /// What was read last. It differs from `effective` where a restart is needed.
  var read: GatewaySettings

  init(_ settings: GatewaySettings) {
    effective = settings
    read = settings
  }
}

/// SIGHUP: the configuration is read again.
extension GatewayServer {
  /// What of the plan's settings differs from what is in effect, and can change while the process runs, goes into effect: of each
  /// session all of `upstream` but its queue, by a new connection beside the old one, and `log.level`. The rest is named in the log,
  /// since it needs a restart. A session that the plan no longer has goes on as it is.
  ///
  /// A session whose upstream is the same as before keeps its connection. Where nothing at all has changed, the reason to read the
  /// configuration again must be a certificate or a credential, so every session makes a new connection.
  func reload(_ plan: GatewayPlan, _ running: inout RunningSettings) {
    let old = running.effective
    let (effective, stale) = plan.settings.effective(after: old)
    if !stale.isEmpty {
      logger.warning("some changed settings need a restart", [.text("settings", stale.joined(separator: ", "))])
    }
    do throws(SettingProblems) {
      // The queue stays as it was, and may not go with what is new.
      try effective.check()
    } catch {
      logger.error("the new configuration cannot be used; the old one stays", [.text("reason", error.description)])
      return
    }
    let renewsAll = plan.settings == running.read
    let before = old.configuredSessions
    for new in effective.configuredSessions {
      guard let planned = plan.sessions.first(where: { $0.name == new.name }), let session = sessions.find(new.name)
      else { continue }
      let isSame = before.first { $0.name == new.name }?.configuration.upstream == new.configuration.upstream
      guard renewsAll || !isSame else { continue }
      session.upstream.reconfigure(
        planned.settings.with(new.configuration.upstream), because: isSame ? .credential : .configuration)
    }
    logger.level = effective.log.level
    logger.info("the configuration was read again", [.flag("changed", effective != old)])
    running.effective = effective
    running.read = plan.settings
  }
}
