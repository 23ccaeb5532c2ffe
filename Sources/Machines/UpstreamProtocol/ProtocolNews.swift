import ByteStreams
import Continuity

/// An event for clients.
package struct ProtocolPush: Equatable, Sendable {
  /// An `EventRecord`.
  package let record: ByteString
  /// The message that acknowledges the event, to be sent when the push is stored; nil if there is none.
  package let acknowledgement: ByteString?
  /// The continuation after this event, if the server can restore the state of the event's namespace.
  package let recovery: Continuation?

  package init(record: ByteString, acknowledgement: ByteString?, recovery: Continuation? = nil) {
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
  /// `{"args":[…],"attachments":[…]}`
  package let document: ByteString
  /// Whether the document can be embedded in other documents.
  package let isEmbeddable: Bool

  package static func == (left: ProtocolReply, right: ProtocolReply) -> Bool {
    left.id == right.id && left.document.bytes.equals(right.document.bytes)
  }
}

/// A WebSocket message that the session itself sends.
package struct ProtocolFrame: Sendable {
  package let payload: ByteString
  package let kind: MessageKind

  package init(_ payload: ByteString, _ kind: MessageKind = .text) {
    self.payload = payload
    self.kind = kind
  }
}

/// The message that acknowledges a push.
package struct PushAcknowledgement: Sendable {
  package let frame: ProtocolFrame
  /// Whether the message must not be sent before the push is stored.
  package let isAfterStoring: Bool
}

/// The state of a namespace, which is a part of a connection. The upstream accepts and ends each namespace separately.
package struct NamespaceStatus: Equatable, Sendable {
  package enum State: String, Sendable { case connecting, connected, refused, disconnected }

  package let name: String
  package let isRequired: Bool
  package var state: State
  /// The reason that the server gives for a refusal.
  package var reason: String?

  package init(name: String, isRequired: Bool, state: State, reason: String? = nil) {
    self.name = name
    self.isRequired = isRequired
    self.state = state
    self.reason = reason
  }
}

/// Changes that a protocol reports in addition to the meaning of a message.
package struct ProtocolNews: Equatable, Sendable {
  /// The heartbeats that the server has announced. They replace the configured heartbeats.
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
  /// Maximum size of a message that the server accepts; nil if the server has not announced a size, or the size is
  /// unchanged.
  package var maximumPayload: Int?
  /// The states of all namespaces, if any has changed.
  package var namespaces: [NamespaceStatus]?
  /// Whether a namespace was connected and its state was not restored. If so, pushes may be missing.
  package var isStateLost = false
  /// The acknowledgement of an event that is not passed on.
  package var acknowledgement: ByteString?

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

/// The result of encoding an outgoing message.
package enum EncodingResult: Equatable, Sendable {
  case written
  /// The connection cannot send the message: the namespace is not connected, or the message acknowledges an event of
  /// another connection.
  case notConnected
  /// The server does not accept messages of this size.
  case tooLarge
}

/// The refusal of a server during the setup.
package struct ProtocolRefusal: Equatable, Sendable {
  /// Whether the server refuses because it speaks another version. If false, it rejects the credentials.
  package let isWrongVersion: Bool
  package let sentence: String
  /// The beginning of the server's own text.
  package let text: String
  package let isCut: Bool
}
