import Configuration
import Outbox
import UpstreamSession

extension OutboxSettings {
  /// From what the operator wrote under `upstream.queue`. `sendsPings`: whether the upstream bears them.
  init(_ configured: GatewaySettings.Queue, sendsPings: Bool) throws(SettingProblem) {
    self.init()
    maximumMessages = configured.messages
    maximumBytes = configured.bytes
    overflow = configured.overflow == "drop-oldest" ? .dropOldest : .refuse
    redelivery = configured.redeliver == "unconfirmed" ? .unconfirmed : .never
    maximumAttempts = configured.maximumAttempts
    // Nothing can be confirmed without the pings that stand behind messages.
    confirms = configured.confirm && sendsPings
    barrierMessages = configured.confirmMessages
    barrierDelay = configured.confirmDelay
    if configured.rate > 0 {
      pace = Pace(messages: configured.rate, interval: configured.rateInterval, burst: configured.burst)
    }
    if redelivery == .unconfirmed, !confirms {
      throw SettingProblem(
        "upstream.queue.redeliver", .none,
        "'unconfirmed' needs upstream.queue.confirm and upstream.heartbeat.ping: without pings nothing is confirmed")
    }
  }
}
