import ByteStreams
import Continuity

/// An event for clients.
package struct ProtocolPush: Equatable, Sendable {
  /// A `EventRecord`.
  package let record: SharedBytes
  /// The message that acknowledges the event, to be sent once the push is stored; nil: none.
  package let acknowledgement: SharedBytes?
  /// What continues after this event, if the server can restore the state of its namespace.
  package let recovery: Continuation?

  package init(record: SharedBytes, acknowledgement: SharedBytes?, recovery: Continuation? = nil) {
    self.record = record
    self.acknowledgement = acknowledgement
    self.recovery = recovery
  }

  package static func == (left: ProtocolPush, right: ProtocolPush) -> Bool {
    left.record.bytes.equals(right.record.bytes)
  }
}

/// The reply to an event that was sent with an id.
package struct ProtocolReply: Equatable, Sendable {
  package let id: UInt64
  /// `{"args":[…],"attachments":[…]}`.
  package let document: SharedBytes
  /// Whether other documents can contain it.
  package let isEmbeddable: Bool

  package static func == (left: ProtocolReply, right: ProtocolReply) -> Bool {
    left.id == right.id && left.document.bytes.equals(right.document.bytes)
  }
}

/// One WebSocket message of the session itself.
package struct ProtocolFrame: Sendable {
  package let payload: SharedBytes
  package let kind: MessageKind

  package init(_ payload: SharedBytes, _ kind: MessageKind = .text) {
    self.payload = payload
    self.kind = kind
  }
}

/// The state of a namespace, a part of a connection that the upstream accepts and ends by itself.
package struct NamespaceStatus: Equatable, Sendable {
  package enum State: String, Sendable { case connecting, connected, refused, disconnected }

  package let name: String
  package let isRequired: Bool
  package var state: State
  /// The server's reason of a refusal.
  package var reason: String?

  package init(name: String, isRequired: Bool, state: State, reason: String? = nil) {
    self.name = name
    self.isRequired = isRequired
    self.state = state
    self.reason = reason
  }
}

/// What a protocol reports beside the meaning of a message.
package struct ProtocolNews: Equatable, Sendable {
  /// The heartbeats that the server has announced, in place of the configured ones.
  package struct Heartbeats: Equatable, Sendable {
    /// As in `HeartbeatSettings`.
    package var interval: TimeSpan?
    package var timeout: TimeSpan?
    package var within: TimeSpan?

    package init(interval: TimeSpan? = nil, timeout: TimeSpan? = nil, within: TimeSpan? = nil) {
      self.interval = interval
      self.timeout = timeout
      self.within = within
    }
  }

  package var heartbeats: Heartbeats?
  /// Maximum size of a message that the server accepts; nil: not announced, or no news.
  package var maximumPayload: Int?
  /// All namespaces, if the state of one has changed.
  package var namespaces: [NamespaceStatus]?
  /// A namespace is connected, and the server has not restored its state: pushes may be missing.
  package var isStateLost = false
  /// The acknowledgement of an event that is not passed on.
  package var acknowledgement: SharedBytes?

  package init() {}

  package static func == (left: ProtocolNews, right: ProtocolNews) -> Bool {
    let haveSameReply =
      switch (left.acknowledgement, right.acknowledgement) {
      case (nil, nil): true
      case (let left?, let right?): left.bytes.equals(right.bytes)
      default: false
      }
    return haveSameReply && left.heartbeats == right.heartbeats && left.maximumPayload == right.maximumPayload
      && left.namespaces == right.namespaces && left.isStateLost == right.isStateLost
  }
}

/// What became of an outgoing message.
package enum EncodingResult: Equatable, Sendable {
  case written
  /// The connection cannot carry it: its namespace is not connected, or it belongs to another connection.
  case notConnected
  /// The server does not accept messages of this size.
  case tooLarge
}

/// The server refuses what the setup needs.
package struct ProtocolRefusal: Equatable, Sendable {
  /// Whether it speaks another version. Otherwise it rejects the credentials.
  package let isWrongVersion: Bool
  package let sentence: String
  /// The beginning of the server's own text.
  package let text: String
  package let isCut: Bool
}
