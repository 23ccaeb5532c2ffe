import ByteStreams
import Events
import SocketIO

/// The declaration of a Socket.IO upstream.
extension SocketIOSettings {
  package var name: String { "Socket.IO" }
  package var section: String { "upstream.socketio" }

  package var capabilities: ProtocolCapabilities {
    let common: ProtocolCapabilities = [
      .examination, .severalMeanings, .announcedHeartbeats, .encoding, .events, .continuations,
    ]
    return version == .three ? common.union(.messagePings) : common
  }

  package func makeProtocol(_ conventions: UpstreamConventions, messageBytes: Int) -> any UpstreamProtocol {
    SocketIOProtocol(conventions, messageBytes: messageBytes)
  }

  /// The steps are the open packet, and the CONNECT of each namespace.
  package var steps: [ProtocolStep] {
    var opening = ProtocolStep(
      name: "the open packet of Engine.IO", missing: "the upstream sent no open packet of Engine.IO")
    opening.hint = ": is it a Socket.IO server, and the path of 'upstream.url' right?"
    return [opening]
      + joined.map { namespace in
        let name = "the CONNECT of namespace '\(namespace.name)'"
        var step = ProtocolStep(name: name, missing: "the server did not respond to \(name)")
        step.isOptional = !namespace.isRequired
        return step
      }
  }

  // MARK: Events

  package var eventFormat: (any EventFormat)? { self }
  package var namespaceNames: [String] { joined.map(\.name) }
  package var takesAcknowledgements: Bool { acknowledgements == .client }
  package var acknowledgementsWord: String { acknowledgements.rawValue }
  package func check(name: [UInt8]) throws(EventFormatError) { try EventEnvelope.check(name: name) }
  package func envelope(_ text: Span<UInt8>) throws(EventFormatError) -> EventEnvelope {
    try EventEnvelope(text, attachmentLimit: attachments)
  }
  package func largestFrame(of event: EventParts) -> Int { event.largestFrame(version) }

  // MARK: The opening request

  package func hint(status: Int, body: String) -> String {
    if status == 404 { return ": does the path of 'upstream.url' lead to a Socket.IO server?" }
    guard status == 400 else { return "" }
    let content = Array(body.utf8)
    let advice = EngineIORefusal(content: content.span).advice(version)
    let text = EngineIORefusal.text(content.span)
    return ": \(advice)" + (text.isEmpty ? "" : " (\(String(decoding: text.prefix(256), as: UTF8.self)))")
  }

  package var hintForEnd: String {
    ": the server may handle no upgrades at this path; check the path of 'upstream.url'"
  }

  /// The official server accepts the upgrade before it checks the version and the session, and then sends an HTTP
  /// response in place of frames.
  package func isRefusal(afterUpgrade bytes: Span<UInt8>) -> Bool? { EngineIORefusal.isResponse(bytes) }

  // MARK: Profiles

  mutating func replace(_ values: [String: String]) throws(TemplateVariableError) {
    for index in query.indices { query[index].value = try query[index].value.replacing(values) }
    for index in namespaces.indices { namespaces[index].auth = try namespaces[index].auth?.replacing(values) }
  }
}
