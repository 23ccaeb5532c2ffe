import ByteStreams
import UpstreamProtocol

/// Settings for what an upstream expects above WebSocket: opening messages, heartbeats, subscriptions.
extension Setting {
  static var conventions: [Setting] {
    [
      Setting(
        "upstream.on_open", .opening(\.upstream.conventions.onOpen),
        "messages to send and answers to await before the session is ready", isSecret: true),
      Setting(
        "upstream.heartbeat.client.message", .template(\.upstream.conventions.client.message, .heartbeat),
        "a heartbeat to send", isSecret: true),
      Setting(
        "upstream.heartbeat.client.interval",
        .duration(\.upstream.conventions.client.interval, millisecond * 10...day), "time between two of them"),
      Setting(
        "upstream.heartbeat.client.expect", .matcher(\.upstream.conventions.client.expect),
        "the answer that each must get"),
      Setting(
        "upstream.heartbeat.client.timeout", .duration(\.upstream.conventions.client.timeout, millisecond * 10...day),
        "time within which it must come"),
      Setting(
        "upstream.heartbeat.server.match", .matcher(\.upstream.conventions.server.match),
        "what a heartbeat of the upstream looks like"),
      Setting(
        "upstream.heartbeat.server.reply", .template(\.upstream.conventions.server.reply, .reply),
        "the answer to it", isSecret: true),
      Setting(
        "upstream.heartbeat.server.within", .duration(\.upstream.conventions.server.within, .zero...day),
        "how often one must come at least; 0 is not watched"),
      Setting(
        "upstream.payload_codec", .choice(\.upstream.payloadCodec, PayloadCodec.allCases.map(\.rawValue)),
        "how the upstream packs its binary messages"),
      Setting(
        "upstream.cursor.pointer", .pointer(\.upstream.conventions.cursor.pointer),
        "JSON pointer to the value of ${cursor} in a push"),
      Setting(
        "upstream.cursor.match", .matcher(\.upstream.conventions.cursor.match), "which pushes carry it; none: all"),
      Setting(
        "upstream.cursor.initial", .template(\.upstream.conventions.cursor.initial, .value),
        "the cursor before the first push", isSecret: true),
      Setting(
        "upstream.subscriptions.add.match", .matcher(\.upstream.conventions.subscriptions.add.match),
        "what a client's message looks like that makes a subscription"),
      Setting(
        "upstream.subscriptions.add.key", .pointer(\.upstream.conventions.subscriptions.add.key),
        "JSON pointer to the key in that message"),
      Setting(
        "upstream.subscriptions.remove.match", .matcher(\.upstream.conventions.subscriptions.remove.match),
        "what a client's message looks like that ends one"),
      Setting(
        "upstream.subscriptions.remove.key", .pointer(\.upstream.conventions.subscriptions.remove.key),
        "JSON pointer to the key in that message"),
      Setting(
        "upstream.subscriptions.ended.match", .matcher(\.upstream.conventions.subscriptions.ended.match),
        "what a push looks like that says a subscription has ended"),
      Setting(
        "upstream.subscriptions.ended.key", .pointer(\.upstream.conventions.subscriptions.ended.key),
        "JSON pointer to the key in that message"),
      Setting(
        "upstream.subscriptions.entries", .count(\.upstream.conventions.subscriptions.entries, 1...1_000_000),
        "subscriptions that are made again on a new connection"),
      Setting(
        "upstream.subscriptions.bytes", .size(\.upstream.conventions.subscriptions.bytes, 1024...(1 << 30)),
        "bytes of their messages and keys"),
      Setting(
        "upstream.credential.env", .text(\.upstream.conventions.credential.environmentVariable),
        "the environment's variable that holds the credential"),
      Setting(
        "upstream.credential.file", .text(\.upstream.conventions.credential.file),
        "the file that holds it, read at each dial"),
      Setting(
        "upstream.credential.command", .list(\.upstream.conventions.credential.command),
        "the program, and its arguments, that prints it", isSecret: true),
      Setting(
        "upstream.credential.timeout",
        .duration(\.upstream.conventions.credential.timeout, millisecond * 10...(.minutes(10))),
        "time the command may take"),
      Setting(
        "upstream.credential.header", .template(\.upstream.conventions.credential.header, .field),
        "the field of the opening request it goes into", isSecret: true),
      Setting(
        "upstream.credential.query", .text(\.upstream.conventions.credential.query),
        "the parameter of the URL's query it goes into"),
    ]
  }
}
