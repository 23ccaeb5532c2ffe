import ByteStreams
import Profiles
import Upstream
import UpstreamProtocol
import UpstreamSession

/// Detection of dead connections, and conventions of the upstream above WebSocket: opening messages, heartbeats,
/// subscriptions and a credential.
extension SettingSection {
  static func liveness(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    let heartbeat = upstream.section("heartbeat", \.session.liveness)
    return SettingSection(settings: [
      heartbeat("ping", \.isEnabled, .boolean, "send WebSocket pings; without them no message is confirmed"),
      heartbeat("interval", \.interval, .duration(millisecond * 10...day), "time between pings, ± 10 %"),
      heartbeat(
        "timeout", \.timeout, .duration(millisecond * 10...day), "timeout for any data of the upstream after a ping"),
    ])
  }

  static func conventions(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    SettingSection(
      settings: messages(upstream) + subscriptions(upstream) + credential(upstream),
      rules: [
        upstream.rule { $0.conventions.problems.map { SettingProblem($0.key, .none, $0.reason) } },
        upstream.rule(capturedURLProblems),
      ])
  }

  private static func capturedURLProblems(_ upstream: UpstreamSettings) -> [SettingProblem] {
    var problems: [SettingProblem] = []
    if let name = upstream.capturedURL, !upstream.conventions.captures.contains(where: { $0.name == name && $0.isKept })
    {
      problems.append(
        SettingProblem("url_from", .none, "it needs 'upstream.capture.\(name)' with 'keep: true'"))
    }
    if upstream.capturedHosts.isAny {
      problems.append(
        SettingProblem(
          "captured_hosts", .none, "'*' would send the secrets of this session to any host: list the hosts"))
    }
    if upstream.capturedURL == nil, !upstream.capturedHosts.isEmpty {
      problems.append(SettingProblem("captured_hosts", .none, "it has no effect without 'upstream.url_from'"))
    }
    return problems
  }

  private static func messages(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    [
      upstream(
        "on_open", \.conventions.onOpen, .opening, "messages to exchange before the session is ready",
        isSecret: true),
      upstream(
        "on_close", \.conventions.onClose, .closing, "messages to send before the gateway closes a connection",
        isSecret: true),
      upstream(
        "heartbeat.client.message", \.conventions.client.message, .template(.heartbeat),
        "heartbeat message to send; empty: none",
        isSecret: true),
      upstream(
        "heartbeat.client.interval", \.conventions.client.interval, .duration(millisecond * 10...day),
        "time between two heartbeat messages"),
      upstream(
        "heartbeat.client.interval_from", \.conventions.client.intervalCapture, .capturedInterval,
        "name of the captured value that is this time; empty: none"),
      upstream(
        "heartbeat.client.expect", \.conventions.client.expect, .matcher,
        "expected response to a heartbeat message; empty: none"),
      upstream(
        "heartbeat.client.timeout", \.conventions.client.timeout, .duration(millisecond * 10...day),
        "timeout for the response to a heartbeat message"),
      upstream(
        "heartbeat.server.match", \.conventions.server.match, .matcher, "how to recognise a heartbeat of the upstream"),
      upstream(
        "heartbeat.server.reply", \.conventions.server.reply, .template(.reply), "response to send; empty: none",
        isSecret: true),
      upstream(
        "heartbeat.server.within", \.conventions.server.within, .duration(.zero...day),
        "maximum time between two heartbeats of the upstream; 0: no limit"),
      upstream(
        "failure", \.conventions.failures, .failures,
        "messages after which the connection is of no use, each with its cause"),
      upstream(
        "acknowledge", \.conventions.acknowledgements, .acknowledgements, "responses to pushes of the upstream",
        isSecret: true),
      upstream(
        "capture", \.conventions.captures, .captures, "values of the upstream's messages for messages of Drawbridge"),
      upstream("payload_codec", \.conventions.codec, .choice, "how the upstream compresses its binary messages"),
      upstream("binary", \.conventions.binary, .choice, "how binary messages of the upstream are passed on"),
      upstream(
        "cursor.pointer", \.conventions.cursor.pointer, .pointer, "JSON pointer to the value of ${cursor} in a push"),
      upstream(
        "cursor.match", \.conventions.cursor.match, .matcher, "pushes that contain a value of ${cursor}; empty: all"),
      upstream(
        "cursor.initial", \.conventions.cursor.initial, .template(.value), "value before the first push",
        isSecret: true),
      upstream(
        "topic.pointer", \.conventions.topics.source, .places, "where the topic of a push is; empty: none"),
      upstream("topic.rules", \.conventions.topics.rules, .topicRules, "topics of messages that a matcher recognises"),
      upstream(
        "correlation", \.conventions.correlation, .correlation, "where requests and replies have their id, for calls"),
    ]
  }

  private static func subscriptions(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    let subscriptions = upstream.section("subscriptions", \.conventions.subscriptions)
    return [
      subscriptions("add.match", \.add.match, .matcher, "messages of clients that subscribe"),
      subscriptions("add.key", \.add.key, .pointer, "JSON pointer to the key in a message that subscribes"),
      subscriptions("remove.match", \.remove.match, .matcher, "messages of clients that unsubscribe"),
      subscriptions("remove.key", \.remove.key, .pointer, "JSON pointer to the key in a message that unsubscribes"),
      subscriptions(
        "ended.match", \.ended.match, .strictMatcher, "pushes that end a subscription"),
      subscriptions("ended.key", \.ended.key, .pointer, "JSON pointer to the key in a push that ends a subscription"),
      subscriptions(
        "replace", \.replacements, .replacements, "captured values in messages that are sent again"),
      subscriptions(
        "entries", \.entries, .count(1...1_000_000), "maximum number of kept subscriptions"),
      subscriptions(
        "bytes", \.bytes, .size(1024...(1 << 30)), "maximum size of the messages and keys of kept subscriptions"),
    ]
  }

  private static func credential(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    let credential = upstream.section("credential", \.conventions.credential)
    return [
      credential("env", \.environmentVariable, .text, "environment variable with the credential"),
      credential("file", \.file, .path, "file with the credential, read for each connection attempt"),
      credential(
        "command", \.command, .texts, "program and arguments; its standard output is the credential", isSecret: true),
      credential("timeout", \.timeout, .duration(millisecond * 10...(.minutes(10))), "maximum run time of the command"),
      credential(
        "header", \.header, .template(.field), "header field of the opening request that contains the credential",
        isSecret: true),
      credential("query", \.query, .text, "query parameter of the URL that contains the credential"),
    ]
  }
}
