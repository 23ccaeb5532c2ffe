import ByteStreams
import Outbox
import Upstream
import UpstreamSession

/// The settings of the queue of messages for the upstream. The queue outlives connections, so a reload does not change
/// these settings.
extension SettingSection {
  static func queue(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    let queue = upstream.section("queue", \.outbox, isReloadable: false)
    let watermarks = upstream.section("queue", \.self, isReloadable: false)
    return SettingSection(
      settings: [
        queue("messages", \.maximumMessages, .count(1...10_000_000), "maximum number of queued messages"),
        queue("bytes", \.maximumBytes, .size(1024...(16 << 30)), "maximum total size of queued messages"),
        queue(
          "ttl", \.timeToLive, .duration(.zero...day), "how long a message may be queued, unless it has a TTL field"),
        queue("overflow", \.overflow, .choice, "when the queue is full: refuse new messages, or drop-oldest"),
        queue(
          "redeliver", \.redelivery, .choice,
          "messages that are sent again after a lost connection: never or unconfirmed"),
        queue(
          "max_attempts", \.maximumAttempts, .count(1...255),
          "maximum number of connections lost while a message is sent"),
        queue("confirm", \.confirms, .boolean, "confirm messages by a ping that is sent after them"),
        queue(
          "confirm_messages", \.barrierMessages, .count(1...65_536),
          "number of messages after which a confirming ping is sent"),
        queue(
          "confirm_delay", \.barrierDelay, .duration(millisecond...(.minutes(1))),
          "time after the first unconfirmed message until a confirming ping, at the earliest 200 ms after the last ping"
        ),
        queue("rate", \.rate, .count(0...1_000_000), "maximum number of messages per rate_interval; 0: no limit"),
        queue("rate_interval", \.rateInterval, .duration(millisecond...day), "interval of rate"),
        queue("burst", \.burst, .count(1...1_000_000), "messages that may be sent at once after a pause, with rate"),
        watermarks("high_water", \.highWater, .size(1024...(1 << 30)), "maximum number of bytes framed for one write"),
        watermarks("low_water", \.lowWater, .size(0...(1 << 30)), "unsent bytes at which sending continues"),
      ],
      orders: [
        watermarks.order(
          "low_water", \.lowWater, "high_water", \.highWater,
          "sending pauses at high_water and continues at low_water")
      ], rules: [watermarks.rule(redeliveryProblems)])
  }

  private static func redeliveryProblems(_ upstream: UpstreamSettings) -> [SettingProblem] {
    guard upstream.outbox.redelivery == .unconfirmed, !upstream.outbox.confirms || !upstream.session.liveness.isEnabled
    else { return [] }
    return [
      SettingProblem(
        "redeliver", .none,
        "'unconfirmed' needs upstream.queue.confirm and upstream.heartbeat.ping: without pings no message is confirmed")
    ]
  }
}
