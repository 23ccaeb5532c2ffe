import ByteStreams

/// Where a session's messages go. Called on the session's loop.
package protocol UpstreamSink: AnyObject, Sendable {
  /// One whole message. `payload` is valid during the call only; `now` is wall-clock time in milliseconds.
  func received(_ payload: Span<UInt8>, kind: MessageKind, now: Int64)
  /// A connection that was ready is gone: pushes may be missing from here on.
  func lost()
  /// Whether clients wait for messages now: an on-demand session is kept open for them.
  var hasReaders: Bool { get }
  /// Whether what is posted inside `received` is written before the next message is read, each in a write of its own. An
  /// answer then leaves also when a violation follows its question at once. False where throughput counts.
  var answersAtOnce: Bool { get }
}

extension UpstreamSink {
  package var answersAtOnce: Bool { false }
  package var hasReaders: Bool { false }
}
