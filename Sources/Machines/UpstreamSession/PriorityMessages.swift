import ByteStreams

/// Messages of the session itself on one connection: setup messages, heartbeats and responses to heartbeats.
///
/// They are sent ahead of the outbox, have no delivery state, and end with their connection. They are pending only
/// while the upstream does not read its socket. Setup messages are limited by the configuration. A new heartbeat, or a
/// new response to an upstream's heartbeat, replaces the pending message of the same kind, as with pongs (RFC 6455
/// §5.5.3). So an upstream that sends heartbeats and reads nothing cannot make the queue grow.
package struct PriorityMessages: Sendable {
  private var pending: [PriorityMessage] = []
  /// Bytes of the acknowledgements.
  private var acknowledgementBytes = 0

  package init() {}

  package var count: Int { pending.count }

  /// Bytes of the payloads.
  package var bytes: Int { pending.reduce(0) { $0 + $1.payload.count } }

  /// Whether reading from the upstream must pause. Without this pause, an upstream that requests acknowledgements but
  /// reads nothing would make the gateway keep an unlimited number of them. The limit is checked only before a read,
  /// and no acknowledgement is dropped. So the messages of a single read may take the count above the limit.
  package var isFull: Bool { pending.count >= Self.limit || acknowledgementBytes >= Self.byteLimit }

  package static var limit: Int { 4_096 }
  /// The limit on the bytes of the acknowledgements. 4,096 acknowledgements of the usual size need fewer bytes. Setup
  /// messages do not count: an upstream that sends before it reads a large setup message would otherwise block itself.
  package static var byteLimit: Int { 1 << 20 }

  package mutating func append(_ message: PriorityMessage) {
    if message.purpose.isReplaceable { pending.removeAll { $0.purpose == message.purpose } }
    if message.purpose == .acknowledgement { acknowledgementBytes += message.payload.count }
    pending.append(message)
  }

  /// Removes and returns all pending messages, in order.
  package mutating func takeAll() -> [PriorityMessage] {
    guard !pending.isEmpty else { return [] }
    defer { (pending, acknowledgementBytes) = ([], 0) }
    return pending
  }
}

/// One message of the session itself.
package struct PriorityMessage: Sendable {
  package enum Purpose: Sendable, Equatable {
    /// A message of `upstream.on_open`, or a subscription that is made again.
    case setup
    case heartbeat
    /// The response to a heartbeat of the upstream.
    case reply
    /// The acknowledgement of an event.
    case acknowledgement

    /// Whether only the newest message is useful.
    fileprivate var isReplaceable: Bool { self == .heartbeat || self == .reply }
  }

  package let purpose: Purpose
  package let kind: MessageKind
  package let payload: ByteString

  package init(_ purpose: Purpose, kind: MessageKind, payload: ByteString) {
    self.purpose = purpose
    self.kind = kind
    self.payload = payload
  }
}
