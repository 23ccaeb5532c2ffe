import Configuration
import HTTPServer
import Host
import Logging
import Reactor
import Sessions
import Upstream
import UpstreamSession

/// The settings of a running process, which a reload can change.
struct RunningSettings {
  var effective: GatewaySettings
  /// The settings as they were read at the start or on the last SIGHUP. A reload because of a changed file does not
  /// alter this value.
  var lastRequested: GatewaySettings

  init(_ settings: GatewaySettings) {
    effective = settings
    lastRequested = settings
  }
}

/// Applies a configuration that was read again.
extension GatewayServer {
  /// Applies the changed settings of the plan that need no restart: `log.level`, `log.access`, `reload`, `shutdown`,
  /// and for each session its retention, its webhooks, and `upstream` except its queue. The log names the other changed
  /// settings. `upstream` is applied by a new connection that replaces the old one. A session that is missing in the
  /// plan keeps running unchanged. If the settings are invalid, logs why and returns false.
  ///
  /// A session keeps its connection if nothing in its `upstream` has changed, or only its topics. But a SIGHUP gives
  /// every session a new connection if no setting has changed since the start or the last SIGHUP: the operator may have
  /// replaced a certificate or credential, and the gateway does not compare their files. Operators and their tools also
  /// send SIGHUP after each change of the file. If the gateway has already applied this change without a signal, the
  /// SIGHUP that follows the change opens no new connections.
  func reload(_ plan: GatewayPlan, because reason: ReloadReason, _ running: inout RunningSettings) -> Bool {
    let old = running.effective
    let (effective, requiringRestart) = plan.settings.effective(after: old)
    if !requiringRestart.isEmpty {
      logger.warning(
        "some changed settings take effect only after a restart",
        [.text("settings", requiringRestart.joined(separator: ", "))])
    }
    do throws(SettingProblems) {
      // The queue keeps its old settings, which may conflict with the new settings.
      try effective.check()
    } catch {
      logger.error(
        "the new configuration is not valid; the old one remains in effect", [.text("reason", error.description)])
      return false
    }
    // A file that was only rewritten with the same content, as by configuration management, is no reason to reconnect.
    let reconnectsAll = reason == .signal && plan.settings == running.lastRequested
    let before = old.configuredSessions
    for new in effective.configuredSessions {
      guard let planned = plan.sessions.first(where: { $0.name == new.name }) else { continue }
      let old = before.first { $0.name == new.name }?.configuration
      let retention = new.configuration.retention
      sessions.reload(
        new.name,
        SessionReload(
          retention: retention == old?.retention ? nil : retention, webhooks: planned.webhooks,
          upstream: Self.change(of: planned, to: new.configuration.upstream, from: old?.upstream, reconnectsAll)))
    }
    // Existing sessions keep the settings with which they were created.
    sessions.profiles.replace(with: plan.profiles)
    logger.level = effective.log.level
    certificateWatcher?.check(isRequested: reason == .signal)
    server.accessLog.mode = effective.log.access
    logger.info("configuration reloaded", [.flag("changed", effective != old)])
    running.effective = effective
    replicas?.use(effective)
    if reason == .signal { running.lastRequested = plan.settings }
    return true
  }

  private static func change(
    of planned: SessionPlan, to upstream: UpstreamSettings, from old: UpstreamSettings?, _ reconnects: Bool
  ) -> SessionReload.Upstream {
    guard reconnects || upstream != old else { return .unchanged }
    let settings = planned.settings.with(upstream)
    if !reconnects, let old, !upstream.needsConnection(after: old) { return .topics(settings) }
    return .connection(settings, because: upstream == old ? .reload : .configuration)
  }
}
