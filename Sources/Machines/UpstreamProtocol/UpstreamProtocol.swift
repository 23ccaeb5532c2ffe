import ByteStreams

/// What one connection speaks above WebSocket: which messages of the upstream are for clients, what is said before and beside clients'
/// messages, and how these are written.
///
/// A pure state machine, one value for each connection; what outlives connections is in `ProtocolMemory`. A value of the settings serves as
/// the prototype that every connection copies.
package protocol UpstreamProtocol: Sendable {
  /// Whether each message of the upstream must be given to `receive`. Where not, every message is a push.
  var examinesMessages: Bool { get }
  /// Whether any message of the upstream counts as its heartbeat.
  var takesAnyMessageAsHeartbeat: Bool { get }
  /// Whether outgoing messages must be given to `encode`. Where not, they are sent as they are.
  var encodesMessages: Bool { get }

  /// The files and the credential that were read for this connection.
  mutating func adopt(_ secrets: TemplateValues)

  /// Makes the setup messages from step `first` on, up to the first step that expects a response.
  mutating func prepareSetup(from first: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError)

  /// The message of a setup step; nil for a step that only listens. Its response is expected from now on.
  mutating func beginSetup(step: Int) -> SharedBytes?

  /// Whether a setup response is expected, and of which step.
  var awaitedStep: Int? { get }

  /// A message of the upstream has arrived.
  mutating func receive(_ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory) -> ProtocolEvent

  /// The heartbeat with this number, counted from 1; nil where none is sent.
  mutating func heartbeat(
    _ counter: UInt64, _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> SharedBytes?

  /// The response to the heartbeat that `receive` reported last; nil where none is sent.
  mutating func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> SharedBytes?

  /// Gives the WebSocket messages that carry one outgoing message to `write`, in their order. Called where `encodesMessages`.
  mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, _ write: (Span<UInt8>, MessageKind) -> Void)
}

/// What a message of the upstream means to the session. Only a push is for clients.
package enum ProtocolEvent: Equatable, Sendable {
  case push
  /// The response that the present setup step expects.
  case setupAnswered
  /// The credentials are refused; the message's beginning.
  case refused(text: String, isCut: Bool)
  /// A heartbeat of the upstream.
  case heartbeat
  /// The response to a heartbeat of ours.
  case heartbeatAnswered
}

/// What is known of an upstream beyond one connection.
package struct ProtocolMemory: Sendable {
  /// What clients have subscribed to.
  package var subscriptions: SubscriptionLedger
  /// How far the pushes have come.
  package var cursor: [UInt8]?

  package init(_ rules: SubscriptionRules) { subscriptions = SubscriptionLedger(rules) }
}

/// Why a setup message could not be made.
package struct SetupError: Error, Equatable, Sendable {
  package let step: Int
  package let reason: TemplateError

  package init(step: Int, reason: TemplateError) {
    self.step = step
    self.reason = reason
  }
}
