import ByteStreams

/// Limits on what a Socket.IO server may send.
package struct SocketIOLimits: Equatable, Sendable {
  /// Maximum binary attachments of a packet. The official parser has this limit since 4.2.6 (CVE-2026-33151). Without
  /// this limit, the gateway would wait for the millions of attachments that a packet may announce.
  package var attachments = 10
  /// Maximum size of a packet's text and attachments together, in bytes. `upstream.message_bytes` only limits each
  /// message on its own.
  package var messageBytes = 16 << 20
  /// Maximum acknowledgements that the server has requested and that have not been sent. Above it, the oldest is
  /// forgotten. If a server requests an acknowledgement for each event and clients send them seconds later, a few
  /// hundred are pending.
  package var owedAcknowledgements = 4_096

  /// Maximum acknowledgements that are expected from the server. Above it, the oldest is forgotten. Clients may abandon
  /// their calls before the server responds. With a server that never responds, the gateway would remember the
  /// acknowledgements of all these calls. The limit is twice the maximum number of calls.
  package var expectedAcknowledgements = 8_192

  package init() {}

  /// Maximum size of a session id, a `pid` and an offset, in bytes. Real values have 20 to 40 bytes. Each is kept for
  /// the life of the session.
  static var identifierBytes: Int { 1_024 }
  /// Maximum size of a ping's content, in bytes. Servers send none, or `probe`. The pong has the same content.
  static var pingBytes: Int { 125 }
  /// At most this many bytes of a refusal are reported. They are enough for a sentence.
  static var refusalBytes: Int { 256 }
  /// Shortest and longest interval and timeout that a server may announce. A shorter interval would make the gateway
  /// send all the time. With a longer timeout, a dead connection would not be noticed.
  package static var heartbeat: ClosedRange<TimeSpan> { .milliseconds(100)...(.minutes(10)) }
}
