import ByteStreams
import Inbox

/// Pushes: how many a session keeps, and what a poll gets of them.
extension SettingSection {
  static func retention(_ retention: SettingScope<Retention>) -> SettingSection {
    SettingSection(settings: [
      retention("messages", \.count, .count(1...100_000_000), "pushes kept for readers"),
      retention("bytes", \.bytes, .size(1024...(1 << 40)), "bytes of pushes kept"),
      retention("age", \.age, .duration(.seconds(1)...(day * 365)), "how long pushes are kept"),
    ])
  }

  static func delivery(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let delivery = gateway.section("delivery", \.delivery)
    return SettingSection(
      settings: [
        delivery("wait", \.wait, .duration(.zero...day), "how long a poll is held, unless it says"),
        delivery(
          "maximum_wait", \.maximumWait, .duration(.zero...day),
          "how long a poll, or a wait for a delivery, may ask to be held"),
        delivery("limit", \.limit, .count(1...1_000_000), "messages in one answer, unless the poll says"),
        delivery(
          "maximum_limit", \.maximumLimit, .count(1...1_000_000), "messages in one answer that a poll may ask for"),
        delivery("answer_bytes", \.answerBytes, .size(1...(1 << 30)), "bytes in one answer, unless the poll says"),
        delivery(
          "maximum_answer_bytes", \.maximumAnswerBytes, .size(1...(1 << 30)),
          "bytes in one answer that a poll may ask for"),
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
