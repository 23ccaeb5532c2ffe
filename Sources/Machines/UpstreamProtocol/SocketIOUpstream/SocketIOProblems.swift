import ByteStreams
import JSONCodec
import SocketIO

extension SocketIOSettings {
  package func problems(with conventions: UpstreamConventions) -> [(key: String, reason: String)] {
    var problems: [(String, String)] = []
    func refuse(_ isSet: Bool, _ key: String, _ reason: String) {
      if isSet { problems.append((key, "not possible with 'kind: socketio': \(reason)")) }
    }
    refuse(conventions.codec != .raw, "payload_codec", "attachments are passed on unchanged; leave the setting out")
    refuse(!conventions.topics.isEmpty, "topic", "the name of an event is the topic of its push; leave the setting out")
    refuse(
      conventions.correlation != nil, "correlation",
      "calls wait for the acknowledgement of their event; leave the setting out")
    refuse(
      conventions.subscriptions.add.match != nil, "subscriptions",
      "join rooms with events of 'on_open'; leave the setting out")
    refuse(
      conventions.server.match != nil || conventions.server.reply != nil || conventions.server.within > .zero,
      "heartbeat.server",
      "the server announces its heartbeat when a connection opens; leave the setting out")
    refuse(!conventions.onClose.isEmpty, "on_close", "the close frame ends every namespace; leave the setting out")
    refuse(
      !conventions.acknowledgements.isEmpty, "acknowledge", "events have acknowledgements; use 'upstream.socketio.acks'"
    )
    refuse(conventions.binary != .binary, "binary", "attachments are passed on unchanged; leave the setting out")
    refuse(
      conventions.onOpen.contains { $0.resumed != nil }, "on_open",
      "the server says whether it has restored the state; leave out 'resumed'")
    let own = conventions.onOpen.map(\.send) + [conventions.client.message]
    refuse(
      own.contains { $0?.kind == .binary }, "on_open", "a message of the configuration is an event, which is text")
    refuse(
      conventions.client.message != nil && version == .three, "heartbeat.client",
      "in version 3 the gateway sends Engine.IO's heartbeats; leave the setting out")
    for (index, namespace) in namespaces.enumerated() {
      if namespaces[..<index].contains(where: { $0.name == namespace.name }) {
        problems.append(("socketio.namespaces", "the namespace '\(namespace.name)' is listed twice"))
      }
      guard let auth = namespace.auth else { continue }
      if version == .three {
        refuse(
          namespace.name == "/", "socketio.namespaces",
          "a server of version 3 joins '/' by itself, without 'auth': use 'upstream.socketio.query'")
      } else if let text = try? auth.rendered(with: TemplateValues()),
        !JSONValidator.isValid(text.span) || JSONObject(text.span) == nil
      {
        problems.append(
          ("socketio.namespaces", "'auth' of '\(namespace.name)' is not a JSON object: write '{\"token\":\"…\"}'"))
      }
    }
    return problems
  }
}
