import ByteStreams
import JSONCodec

/// What a message of the upstream is to the session. Only a push is for clients.
package enum MessageMeaning: Equatable, Sendable {
  case push
  /// It completes the setup step whose response is awaited.
  case setupAnswer
  /// It says that the credentials were refused.
  case refusal
  /// A heartbeat of the upstream's.
  case heartbeat
  /// The answer to a heartbeat of ours.
  case heartbeatAnswer
}

extension UpstreamConventions {
  /// `awaited`: the setup step whose response is awaited, if any.
  package func meaning(of payload: Span<UInt8>, awaited: Int?) -> MessageMeaning {
    if let awaited {
      let step = onOpen[awaited]
      if let expect = step.expect, expect.matches(payload) { return .setupAnswer }
      if let refuse = step.refuse, refuse.matches(payload) { return .refusal }
    }
    if let match = server.match, match.matches(payload) { return .heartbeat }
    if let expect = client.expect, expect.matches(payload) { return .heartbeatAnswer }
    return .push
  }

  /// The cursor that a push carries; nil where it carries none, or one too long to be one.
  package func cursor(in payload: Span<UInt8>) -> [UInt8]? {
    guard let pointer = cursor.pointer else { return nil }
    if let match = cursor.match, !match.matches(payload) { return nil }
    guard let content = pointer.content(in: payload), content.count <= CursorSource.maximumBytes else { return nil }
    return content
  }
}
