import API
import ByteStreams
import Inbox

/// Pushes: how many a session keeps, how many a poll returns, and how long a stream lasts.
extension SettingSection {
  static func retention(_ retention: SettingScope<Retention>) -> SettingSection {
    SettingSection(
      settings: [
        retention("messages", \.count, .count(1...100_000_000), "maximum number of pushes kept for clients"),
        retention(
          "bytes", \.bytes, .size(1024...(1 << 40)),
          "maximum size of the kept pushes: their JSON, and 96 bytes for each"),
        retention("age", \.age, .duration(.seconds(1)...(day * 365)), "maximum age of the pushes kept"),
      ],
      orders: [
        retention.order(
          "bytes", \.bytes, ofProcess: "delivery.total_bytes", \.retainedBytes,
          "that is the limit for all sessions together")
      ])
  }

  static func delivery(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let delivery = gateway.section("delivery", \.api.delivery)
    return SettingSection(
      settings: [
        delivery(
          "wait", \.wait, .duration(.zero...day), "how long a poll without new messages is held, unless it has wait="),
        delivery(
          "maximum_wait", \.maximumWait, .duration(.zero...day),
          "maximum wait= of a request; a longer wait is shortened to this"),
        delivery("limit", \.limit, .count(1...1_000_000), "messages per response, unless the poll has limit="),
        delivery(
          "maximum_limit", \.maximumLimit, .count(1...1_000_000),
          "maximum limit= of a poll; larger values are lowered to this"),
        delivery(
          "answer_bytes", \.answerBytes, .size(1...(1 << 30)), "bytes per response, unless the poll has max_bytes="),
        delivery(
          "maximum_answer_bytes", \.maximumAnswerBytes, .size(1...(1 << 30)),
          "maximum max_bytes= of a poll; larger values are lowered to this"),
        gateway(
          "delivery.total_bytes", \.retainedBytes, .size((1 << 20)...(1 << 50)),
          "maximum size of the pushes that all sessions keep; the largest sessions lose their oldest first"),
        delivery(
          "stream_heartbeat", \.streamHeartbeat, .duration(.seconds(1)...(.minutes(10))),
          "longest time without a byte on a stream, after which a heartbeat with the position is sent"),
        delivery(
          "stream_lifetime", \.streamLifetime, .duration(.seconds(1)...day),
          "a stream ends after this time ± 10 %, and its client reconnects"),
      ],
      orders: [
        delivery.order("wait", \.wait, "maximum_wait", \.maximumWait, "no poll is held for longer than the maximum"),
        delivery.order(
          "limit", \.limit, "maximum_limit", \.maximumLimit, "no response has more messages than the maximum"),
        delivery.order(
          "answer_bytes", \.answerBytes, "maximum_answer_bytes", \.maximumAnswerBytes,
          "no response has more bytes than the maximum"),
      ])
  }
}
