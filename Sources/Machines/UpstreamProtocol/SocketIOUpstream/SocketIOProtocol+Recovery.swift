import ByteStreams
import Continuity
import JSONCodec
import SocketIO

/// The acknowledgements of a Socket.IO server as replies to calls, and the data that the next connection needs.
extension SocketIOProtocol {
  func acknowledged(_ content: SocketIOContent, _ text: Span<UInt8>) -> ProtocolEvent {
    guard let id = content.id else { return .ignored }
    var output = ByteQueue(capacity: content.arguments.count + 32)
    output.append(#"{"args":["# as StaticString)
    output.append(text.extracting(content.arguments))
    output.append(#"],"attachments":["# as StaticString)
    for (index, attachment) in content.attachments.enumerated() {
      output.append(index == 0 ? "\"" : ",\"" as StaticString)
      Base64.encode(attachment.span, into: &output)
      output.append(UInt8(ascii: "\""))
    }
    output.append("]}\n" as StaticString)
    return .acknowledged(
      ProtocolReply(
        id: id, document: ByteString(output.copyBytes()), isEmbeddable: !content.hasUnpairedSurrogates))
  }

  // MARK: Recovery

  package var continuations: [String: Continuation] {
    guard !isBroken else { return [:] }
    var result: [String: Continuation] = [:]
    for (index, namespace) in joined.enumerated() {
      let recovery = conversation.recovery(index)
      if let recovery, recovery.offset != nil || conversation.isConnected(index) {
        result[namespace.name] = recovery
      } else if conversation.isConnected(index) {
        result[namespace.name] = Continuation(pid: [])
      }
    }
    return result.values.allSatisfy(\.pid.isEmpty) ? [:] : result
  }
}

extension SocketIOContent {
  /// Approximate memory, in bytes.
  var size: Int { attachments.reduce((text?.count ?? 0) + 64) { $0 + $1.count } }
}
