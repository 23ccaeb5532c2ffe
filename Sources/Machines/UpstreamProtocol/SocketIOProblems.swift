import ByteStreams
import JSONCodec
import SocketIO

extension UpstreamConventions {
  /// Conflicts between the settings of a Socket.IO upstream and others.
  var socketIOProblems: [(key: String, reason: String)] {
    guard kind == .socketIO else {
      return socketIO == SocketIOSettings() ? [] : [("socketio", "it requires 'kind: socketio'")]
    }
    var problems: [(String, String)] = []
    func refuse(_ isSet: Bool, _ key: String, _ reason: String) {
      if isSet { problems.append((key, "not possible with 'kind: socketio': \(reason)")) }
    }
    refuse(codec != .raw, "payload_codec", "attachments are passed on unchanged; leave it out")
    refuse(!topics.isEmpty, "topic", "the name of an event is the topic of its push; leave it out")
    refuse(correlation != nil, "correlation", "calls wait for the acknowledgement of their event; leave it out")
    refuse(
      subscriptions.add.match != nil, "subscriptions", "join rooms with events of 'on_open'; leave it out")
    refuse(
      server.match != nil || server.reply != nil || server.within > .zero, "heartbeat.server",
      "the server announces its heartbeat when a connection opens; leave it out")
    refuse(
      client.message != nil && socketIO.version == .three, "heartbeat.client",
      "in version 3 the gateway sends Engine.IO's heartbeats; leave it out")
    for (index, namespace) in socketIO.namespaces.enumerated() {
      if socketIO.namespaces[..<index].contains(where: { $0.name == namespace.name }) {
        problems.append(("socketio.namespaces", "the namespace '\(namespace.name)' is listed twice"))
      }
      guard let auth = namespace.auth else { continue }
      if socketIO.version == .three {
        refuse(
          namespace.name == "/", "socketio.namespaces",
          "a server of version 3 joins '/' unasked, without 'auth'; use 'upstream.socketio.query'")
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
