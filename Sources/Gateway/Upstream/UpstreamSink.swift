import ByteStreams

/// Where a session's messages go. Called on the session's loop.
protocol UpstreamSink: AnyObject, Sendable {
  /// One whole message. `payload` is valid during the call only; `now` is wall-clock time in milliseconds.
  func received(_ payload: Span<UInt8>, isText: Bool, now: Int64)
  /// A connection that was ready is gone: pushes may be missing from here on.
  func lost()
}
