import ByteStreams
import Continuity
import SocketIO

/// The application protocol of one connection, above WebSocket. It decides which messages of the upstream are for clients, sends
/// messages of its own, and encodes clients' messages.
///
/// A pure state machine, one value per connection. State that outlives connections is in `ProtocolMemory`. The settings hold a
/// prototype that every connection copies.
///
/// `PlainProtocol` and `SocketIOProtocol` implement it. What only the second one has are events of the protocol, a heartbeat and setup steps that the upstream
/// announces, and messages of several frames: a plain session pays one branch for them.
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

  /// Returns what a setup step sends. Its response is expected from now on.
  mutating func beginSetup(step: Int) -> [ProtocolFrame]

  /// The response to an optional setup step is not expected any more.
  mutating func skipSetup(step: Int)

  /// The name of a setup step, in messages for operators.
  func name(ofStep step: Int) -> String

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
    _ payload: Span<UInt8>, kind: MessageKind, _ write: (Span<UInt8>, MessageKind) -> Void
  ) -> EncodingResult

  // What follows has defaults for protocols that do not have it.

  /// The number of the connection, before anything else.
  mutating func setConnection(_ number: UInt64)
  /// How to send a ping with this counter, or a heartbeat (nil).
  mutating func ping(_ counter: UInt64?) -> PingForm
  /// What the last message has brought beside its meaning, once.
  mutating func takeNews() -> ProtocolNews?
  /// The meaning of the next message that was held back during the setup, once the driver has acted on the message before it.
  mutating func receiveHeld(_ memory: inout ProtocolMemory) -> ProtocolEvent?
  /// Whether the server keeps a state for this connection that `saveState` can store.
  var hasState: Bool { get }
  /// What another connection needs to have the state of this one restored, by namespace. Without an offset, a namespace cannot be restored.
  var continuations: [String: Continuation] { get }
  /// The connection ends: stores what the next one needs to have its state restored. Returns whether no push is missing if the server does.
  func saveState(in memory: inout ProtocolMemory) -> Bool
}

extension UpstreamProtocol {
  package mutating func skipSetup(step: Int) {}
  package mutating func setConnection(_ number: UInt64) {}
  package mutating func ping(_ counter: UInt64?) -> PingForm { .webSocket }
  package mutating func takeNews() -> ProtocolNews? { nil }
  package mutating func receiveHeld(_ memory: inout ProtocolMemory) -> ProtocolEvent? { nil }
  package var hasState: Bool { false }
  package var continuations: [String: Continuation] { [:] }
  package func saveState(in memory: inout ProtocolMemory) -> Bool { false }
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
  /// An event for clients.
  case event(ProtocolPush)
  /// The reply to a call.
  case acknowledged(ProtocolReply)
  /// The pong to a ping that was sent as a message; nil: of a heartbeat.
  case pong(UInt64?)
  /// The server refuses the setup.
  indirect case denied(ProtocolRefusal)
  /// The server ends the connection in order, or what it is needed for.
  indirect case ended(String)
  /// These calls get no reply any more.
  case callsEnded([UInt64])
  /// A violation of the protocol: the connection is closed with 1002.
  indirect case violation(String)
  /// Nothing for the session.
  case none
  /// A packet that has no meaning here.
  case ignored
}

/// The state of an upstream that outlives a connection.
package struct ProtocolMemory: Sendable {
  /// What clients have subscribed to.
  package var subscriptions: SubscriptionLedger
  /// The cursor of the last push that had one.
  package var cursor: [UInt8]?
  /// By namespace, what a Socket.IO server needs to restore the state of the last connection. Empty while a connection sends.
  package var recoveries: [String: Continuation] = [:]
  /// A random number of the session.
  package let salt: UInt64

  package init(_ rules: SubscriptionRules, salt: UInt64 = 0) {
    subscriptions = SubscriptionLedger(rules)
    self.salt = salt
  }
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
