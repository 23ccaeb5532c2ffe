import ByteStreams

/// Messages of the session itself on one connection: opening messages, heartbeats and their answers.
///
/// They overtake the queue, are in no account, and end with their connection. They wait only while the upstream leaves unread
/// what was sent. Opening messages are as many as are configured; of heartbeats, and of answers to the upstream's, only the
/// newest waits: it stands for those before it, as with pongs (RFC 6455 §5.5.3). So an upstream that asks and does not read
/// cannot make this grow.
package struct OwnLane: Sendable {
  package enum Kind: Sendable, Equatable {
    case opening
    /// A heartbeat of ours.
    case heartbeat
    /// The answer to one of the upstream's.
    case answer
  }

  package struct Message: Sendable {
    package let kind: Kind
    package let isText: Bool
    package let payload: SharedBytes

    package init(_ kind: Kind, isText: Bool, payload: SharedBytes) {
      self.kind = kind
      self.isText = isText
      self.payload = payload
    }
  }

  private var waiting: [Message] = []

  package init() {}

  package var count: Int { waiting.count }

  package mutating func append(_ message: Message) {
    if message.kind != .opening { waiting.removeAll { $0.kind == message.kind } }
    waiting.append(message)
  }

  /// All that waits, in its order.
  package mutating func takeAll() -> [Message] {
    guard !waiting.isEmpty else { return [] }
    defer { waiting = [] }
    return waiting
  }
}
