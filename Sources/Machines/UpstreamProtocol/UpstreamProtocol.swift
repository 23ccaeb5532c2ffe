import ByteStreams

/// The application protocol of one connection, above WebSocket. It decides which messages of the upstream are for clients, sends
/// messages of its own, and encodes clients' messages.
///
/// A pure state machine, one value per connection. State that outlives connections is in `ProtocolMemory`. The settings hold a
/// prototype that every connection copies.
package protocol UpstreamProtocol: Sendable {
  /// Whether each message of the upstream must be passed to `receive`. If not, every message is a push.
  var examinesMessages: Bool { get }
  /// Whether any message of the upstream counts as its heartbeat.
  var treatsAnyMessageAsHeartbeat: Bool { get }
  /// Whether outgoing messages must be passed to `encode`. If not, they are sent unchanged.
  var encodesMessages: Bool { get }

  /// Sets the files and the credential that were read for this connection.
  mutating func setSecrets(_ secrets: TemplateValues)

  /// Renders the setup messages from step `first` on, up to the first step that expects a response.
  mutating func prepareSetup(from first: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError)

  /// Returns the message of a setup step, or nil if it sends none. Its response is expected from now on.
  mutating func beginSetup(step: Int) -> SharedBytes?

  /// The setup step whose response is pending, if any.
  var awaitedStep: Int? { get }

  /// Classifies a message that arrived from the upstream, and updates `memory`.
  mutating func receive(_ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory) -> ProtocolEvent

  /// The heartbeat message with this number, counted from 1; nil if none is configured.
  mutating func heartbeat(
    _ counter: UInt64, _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> SharedBytes?

  /// The response to the heartbeat that `receive` reported last; nil if none is configured.
  mutating func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> SharedBytes?

  /// Passes the WebSocket messages that carry one outgoing message to `write`, in order. Called only if `encodesMessages`.
  mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, _ write: (Span<UInt8>, MessageKind) -> Void)
}

/// The meaning of an upstream's message to the session. Only pushes are passed to clients.
package enum ProtocolEvent: Equatable, Sendable {
  case push
  /// The response to the pending setup step.
  case setupResponse
  /// The credentials are rejected. `text` is the beginning of the message; `isCut`: the message is longer.
  case refused(text: String, isCut: Bool)
  /// A heartbeat of the upstream.
  case heartbeat
  /// The response to a heartbeat that we sent.
  case heartbeatResponse
}

/// The state of an upstream that outlives a connection.
package struct ProtocolMemory: Sendable {
  /// What clients have subscribed to.
  package var subscriptions: SubscriptionLedger
  /// The cursor of the last push that had one.
  package var cursor: [UInt8]?

  package init(_ rules: SubscriptionRules) { subscriptions = SubscriptionLedger(rules) }
}

/// Why a setup message could not be rendered.
package struct SetupError: Error, Equatable, Sendable {
  package let step: Int
  package let reason: TemplateError

  package init(step: Int, reason: TemplateError) {
    self.step = step
    self.reason = reason
  }
}
