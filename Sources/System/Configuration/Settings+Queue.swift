import ByteStreams
import Outbox
import UpstreamSession

/// The queue in front of the upstream. It outlives connections, so a reload leaves it as it is.
extension SettingSection {
  static func queue(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    let queue = upstream.section("queue", \.outbox, isReloadable: false)
    let marks = upstream.section("queue", \.self, isReloadable: false)
    return SettingSection(
      settings: [
        queue("messages", \.maximumMessages, .count(1...10_000_000), "messages that may wait for the upstream"),
        queue("bytes", \.maximumBytes, .size(1024...(16 << 30)), "bytes that may wait for the upstream"),
        queue("ttl", \.timeToLive, .duration(.zero...day), "how long a message may wait, unless it says (TTL)"),
        queue("overflow", \.overflow, .choice, "what a full queue does with a new message"),
        queue("redeliver", \.redelivery, .choice, "what goes again after a lost connection"),
        queue("max_attempts", \.maximumAttempts, .count(1...255), "connections that may be lost over one message"),
        queue("confirm", \.confirms, .flag, "whether pings find out what has arrived"),
        queue("confirm_messages", \.barrierMessages, .count(1...65_536), "messages behind which such a ping goes out"),
        queue(
          "confirm_delay", \.barrierDelay, .duration(millisecond...(.minutes(1))), "time after which it does anyway"),
        queue("rate", \.rate, .count(0...1_000_000), "messages per rate_interval; 0: no limit"),
        queue("rate_interval", \.rateInterval, .duration(millisecond...day), "the time that rate counts in"),
        queue("burst", \.burst, .count(1...1_000_000), "messages at once after a pause"),
        marks("high_water", \.highWater, .size(1024...(1 << 30)), "unsent bytes at which the queue is held"),
        marks("low_water", \.lowWater, .size(0...(1 << 30)), "unsent bytes at which it flows again"),
      ],
      orders: [
        marks.order(
          "low_water", \.lowWater, "high_water", \.highWater,
          "the queue is held at the high mark and flows again at the low one")
      ], rules: [marks.rule(redeliveryProblems)])
  }

  private static func redeliveryProblems(_ upstream: UpstreamSettings) -> [SettingProblem] {
    guard upstream.outbox.redelivery == .unconfirmed, !upstream.outbox.confirms || !upstream.session.liveness.isEnabled
    else { return [] }
    return [
      SettingProblem(
        "redeliver", .none,
        "'unconfirmed' needs upstream.queue.confirm and upstream.heartbeat.ping: without pings nothing is confirmed")
    ]
  }
}
