import ByteStreams

/// Limits on what a Socket.IO server may send.
package struct SocketIOLimits: Equatable, Sendable {
  /// Binary attachments of a packet. The official parser has this limit since 4.2.6 (CVE-2026-33151). Stops: a packet that announces
  /// millions and keeps us gathering.
  package var attachments = 10
  /// Text and attachments of a packet together, in bytes. `upstream.message_bytes` limits each of its messages only.
  package var messageBytes = 16 << 20
  /// Acknowledgements that the server has requested and that have not been sent. Above it, the oldest is forgotten. A server that
  /// requests one per event, while clients acknowledge them seconds later, has a few hundred.
  package var owedAcknowledgements = 4_096

  /// Acknowledgements that the server owes us. Above it, the oldest is forgotten. A client may leave its call before the server answers it, so
  /// a server that never answers would make us remember all of them. Twice as many as there can be calls.
  package var expectedAcknowledgements = 8_192

  package init() {}

  /// Size of a session id, a `pid` and an offset, in bytes. Real ones have 20 to 40. Each is kept for the life of the session.
  static var identifierBytes: Int { 1_024 }
  /// Size of a ping's content, in bytes. Servers send none, or `probe`. It is sent back.
  static var pingBytes: Int { 125 }
  /// Bytes reported of a refusal: enough for a sentence.
  static var refusalBytes: Int { 256 }
  /// Shortest and longest interval and timeout that a server may announce. A shorter one would keep us sending, and with a longer one a
  /// dead connection would not be noticed.
  package static var heartbeat: ClosedRange<TimeSpan> { .milliseconds(100)...(.minutes(10)) }
}
