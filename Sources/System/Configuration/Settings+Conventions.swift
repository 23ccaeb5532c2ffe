import ByteStreams
import UpstreamProtocol
import UpstreamSession

/// How a dead connection is noticed, and what an upstream expects above WebSocket: opening messages, heartbeats, subscriptions, a
/// credential.
extension SettingSection {
  static func liveness(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    let heartbeat = upstream.section("heartbeat", \.session.liveness)
    return SettingSection(settings: [
      heartbeat("ping", \.isEnabled, .flag, "whether to send WebSocket pings; without them nothing is confirmed"),
      heartbeat("interval", \.interval, .duration(millisecond * 10...day), "time between pings, ± 10 %"),
      heartbeat(
        "timeout", \.timeout, .duration(millisecond * 10...day), "time within which anything must arrive after a ping"),
    ])
  }

  static func conventions(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    SettingSection(
      settings: messages(upstream) + subscriptions(upstream) + credential(upstream),
      rules: [
        upstream.rule { $0.conventions.problems.map { SettingProblem($0.key, .none, $0.reason) } }
      ])
  }

  private static func messages(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    [
      upstream(
        "on_open", \.conventions.onOpen, .opening, "messages to send and answers to await before the session is ready",
        isSecret: true),
      upstream(
        "heartbeat.client.message", \.conventions.client.message, .template(.heartbeat), "a heartbeat to send",
        isSecret: true),
      upstream(
        "heartbeat.client.interval", \.conventions.client.interval, .duration(millisecond * 10...day),
        "time between two of them"),
      upstream("heartbeat.client.expect", \.conventions.client.expect, .matcher, "the answer that each must get"),
      upstream(
        "heartbeat.client.timeout", \.conventions.client.timeout, .duration(millisecond * 10...day),
        "time within which it must come"),
      upstream(
        "heartbeat.server.match", \.conventions.server.match, .matcher, "what a heartbeat of the upstream looks like"),
      upstream(
        "heartbeat.server.reply", \.conventions.server.reply, .template(.reply), "the answer to it", isSecret: true),
      upstream(
        "heartbeat.server.within", \.conventions.server.within, .duration(.zero...day),
        "how often one must come at least; 0 is not watched"),
      upstream("payload_codec", \.conventions.codec, .choice, "how the upstream packs its binary messages"),
      upstream(
        "cursor.pointer", \.conventions.cursor.pointer, .pointer, "JSON pointer to the value of ${cursor} in a push"),
      upstream("cursor.match", \.conventions.cursor.match, .matcher, "which pushes carry it; none: all"),
      upstream(
        "cursor.initial", \.conventions.cursor.initial, .template(.value), "the cursor before the first push",
        isSecret: true),
    ]
  }

  private static func subscriptions(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    let subscriptions = upstream.section("subscriptions", \.conventions.subscriptions)
    return [
      subscriptions("add.match", \.add.match, .matcher, "what a client's message looks like that makes a subscription"),
      subscriptions("add.key", \.add.key, .pointer, "JSON pointer to the key in that message"),
      subscriptions("remove.match", \.remove.match, .matcher, "what a client's message looks like that ends one"),
      subscriptions("remove.key", \.remove.key, .pointer, "JSON pointer to the key in that message"),
      subscriptions(
        "ended.match", \.ended.match, .matcher, "what a push looks like that says a subscription has ended"),
      subscriptions("ended.key", \.ended.key, .pointer, "JSON pointer to the key in that message"),
      subscriptions(
        "entries", \.entries, .count(1...1_000_000), "subscriptions that are made again on a new connection"),
      subscriptions("bytes", \.bytes, .size(1024...(1 << 30)), "bytes of their messages and keys"),
    ]
  }

  private static func credential(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    let credential = upstream.section("credential", \.conventions.credential)
    return [
      credential("env", \.environmentVariable, .text, "the environment's variable that holds the credential"),
      credential("file", \.file, .text, "the file that holds it, read at each dial"),
      credential("command", \.command, .texts, "the program, and its arguments, that prints it", isSecret: true),
      credential("timeout", \.timeout, .duration(millisecond * 10...(.minutes(10))), "time the command may take"),
      credential(
        "header", \.header, .template(.field), "the field of the opening request it goes into", isSecret: true),
      credential("query", \.query, .text, "the parameter of the URL's query it goes into"),
    ]
  }
}
