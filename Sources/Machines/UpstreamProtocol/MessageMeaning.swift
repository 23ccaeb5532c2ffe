import ByteStreams
import JSONCodec

/// The session's classification of a message from the upstream. Only pushes are passed to clients.
package enum MessageMeaning: Equatable, Sendable {
  case push
  /// The response that completes the pending setup step.
  case setupResponse
  /// The upstream rejects the credentials.
  case refusal
  /// The connection has become useless.
  case failure(UpstreamConventions.Failure)
  /// A heartbeat sent by the upstream.
  case heartbeat
  /// The response to a heartbeat that the gateway sent.
  case heartbeatResponse
}

extension UpstreamConventions {
  /// `awaited`: the setup step whose response is pending, if any.
  package func meaning(of payload: Span<UInt8>, awaited: Int?) -> MessageMeaning {
    if let awaited {
      let step = onOpen[awaited]
      if let expect = step.expect, expect.matches(payload) { return .setupResponse }
      if let refuse = step.refuse, refuse.matches(payload) { return .refusal }
    }
    for failure in failures where failure.match.matches(payload) { return .failure(failure) }
    if let match = server.match, match.matches(payload) { return .heartbeat }
    if let expect = client.expect, expect.matches(payload) { return .heartbeatResponse }
    return .push
  }

  /// The cursor in a push; nil if the push has no cursor, or if the cursor is longer than `CursorSource.maximumBytes`.
  package func cursor(in payload: Span<UInt8>) -> [UInt8]? {
    guard let pointer = cursor.pointer else { return nil }
    if let match = cursor.match, !match.matches(payload) { return nil }
    guard let content = pointer.content(in: payload), content.count <= CursorSource.maximumBytes else { return nil }
    return content
  }
}
