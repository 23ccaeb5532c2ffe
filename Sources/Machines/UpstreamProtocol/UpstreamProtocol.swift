import ByteStreams
import Calls
import Continuity

/// The application protocol of one connection, above WebSocket. It decides which messages of the upstream are for
/// clients, sends messages of its own, and encodes clients' messages.
///
/// It is a pure state machine, with one value per connection. State that outlives connections is in `ProtocolMemory`.
/// The settings contain a prototype, which is copied for each connection. A function whose comment names a capability
/// is called only if the protocol has that capability.
package protocol UpstreamProtocol: Sendable {
  var capabilities: ProtocolCapabilities { get }

  /// Called when an attempt begins, with the number of the connection, and the files and the credential that were read
  /// for it.
  mutating func begin(connection: UInt64, _ secrets: TemplateValues)

  /// Renders the setup messages from step `first` up to and including the next step that expects a response.
  mutating func prepareSetup(from first: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError)

  /// Returns the messages of a setup step, whose response is expected from now on.
  mutating func beginSetup(step: Int) -> [ProtocolFrame]

  /// Whether a setup step is skipped, because its condition does not hold.
  func skips(_ step: Int) -> Bool

  /// Stops expecting the response to an optional setup step, or skips a step. Returns the resulting changes.
  mutating func skipSetup(step: Int) -> ProtocolEvent

  /// Returns the messages to send before a close frame of the gateway.
  mutating func lastMessages(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> [ProtocolFrame]

  /// Classifies a message that arrived from the upstream, and updates `memory`.
  mutating func receive(_ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory) -> ProtocolEvent

  /// The size of the messages that were received and are only a part of an event
  /// (`ProtocolCapabilities.events`).
  var incompleteBytes: Int { get }

  /// Returns the next meaning of the last message or setup step; nil if there is none. Called after the driver has
  /// acted on the previous meaning (`ProtocolCapabilities.severalMeanings`).
  mutating func next(_ memory: inout ProtocolMemory) -> ProtocolEvent?

  /// The heartbeat message with this number, counted from 1; nil if none is configured.
  mutating func heartbeat(
    _ counter: UInt64, _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> ByteString?

  /// The response to the heartbeat that `receive` reported last; nil if none is configured.
  mutating func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> ByteString?

  /// The text message that is a ping with this counter, or a heartbeat if the counter is nil. Returns nil if no ping
  /// can be sent now, since too many pings have no pong (`ProtocolCapabilities.messagePings`).
  mutating func ping(_ counter: UInt64?) -> StaticString?

  /// Encodes an outgoing message, and passes the resulting WebSocket messages to `write`, in order
  /// (`ProtocolCapabilities.encoding`). `isCall`: whether the message is the request of a call.
  mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, isCall: Bool, _ write: (MessageParts, MessageKind) -> Void
  ) -> EncodingResult

  /// The numbers of the calls that `encode` has written since the last call of this function
  /// (`ProtocolCapabilities.numberedIDs`).
  mutating func takeAssignedNumbers() -> [(call: CallID, number: UInt32)]
  /// Whether `forgetCalls` must be called, since too many calls got no reply.
  var mustForgetCalls: Bool { get }
  /// Forgets the calls for which `isOpen` returns false.
  mutating func forgetCalls(except isOpen: (CallID) -> Bool)
  /// Whether the numbers of this connection are nearly used up. If so, another connection must replace this connection.
  /// Returns true only once.
  mutating func takeExhaustion() -> Bool

  /// Returns the message that acknowledges the last push; nil if there is none. Called when the push has been passed on
  /// (`ProtocolCapabilities.acknowledgements`).
  mutating func takeAcknowledgement(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> PushAcknowledgement?

  /// The captured values of this connection.
  var captures: [String: CapturedValue] { get }
  /// Returns the changes of captured values since the last call; nil if there are none.
  /// (`ProtocolCapabilities.captures`)
  mutating func takeCaptureNews() -> CaptureNews?
  /// The values of `captures` that later connections may use.
  var capturesToKeep: [String: CapturedValue] { get }
  /// Called when another connection of the session says that the kept values are of no more use. From now on,
  /// `capturesToKeep` has only values from messages of this connection.
  ///
  /// - Parameter withCursor: whether later messages of this connection must not set the cursor.
  mutating func forgetKept(withCursor: Bool)

  /// The encoded texts in the last messages of the gateway, which may contain secrets.
  var encodedTexts: [[UInt8]] { get }

  /// The data that the next connection needs to restore the state of this connection, by namespace. A namespace without
  /// an offset cannot be restored (`ProtocolCapabilities.continuations`).
  var continuations: [String: Continuation] { get }
}

extension UpstreamProtocol {
  package mutating func begin(connection: UInt64, _ secrets: TemplateValues) {}
  package mutating func prepareSetup(from first: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError) {}
  package mutating func beginSetup(step: Int) -> [ProtocolFrame] { [] }
  package func skips(_ step: Int) -> Bool { false }
  package mutating func skipSetup(step: Int) -> ProtocolEvent { .none }
  package mutating func lastMessages(
    _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> [ProtocolFrame] { [] }
  package mutating func receive(
    _ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory
  ) -> ProtocolEvent { .push }
  package var incompleteBytes: Int { 0 }
  package mutating func next(_ memory: inout ProtocolMemory) -> ProtocolEvent? { nil }
  package mutating func heartbeat(
    _ counter: UInt64, _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> ByteString? { nil }
  package mutating func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> ByteString? {
    nil
  }
  package mutating func ping(_ counter: UInt64?) -> StaticString? { nil }
  package mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, isCall: Bool, _ write: (MessageParts, MessageKind) -> Void
  ) -> EncodingResult {
    write(MessageParts(payload), kind)
    return .written
  }
  package mutating func takeAssignedNumbers() -> [(call: CallID, number: UInt32)] { [] }
  package var mustForgetCalls: Bool { false }
  package mutating func forgetCalls(except isOpen: (CallID) -> Bool) {}
  package mutating func takeExhaustion() -> Bool { false }
  package mutating func takeAcknowledgement(
    _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> PushAcknowledgement? { nil }
  package var captures: [String: CapturedValue] { [:] }
  package mutating func takeCaptureNews() -> CaptureNews? { nil }
  package var capturesToKeep: [String: CapturedValue] { captures }
  package mutating func forgetKept(withCursor: Bool) {}
  package var encodedTexts: [[UInt8]] { [] }
  package var continuations: [String: Continuation] { [:] }
}

/// The meaning of an upstream's message to the session. Pushes and events are passed to all clients, replies to the
/// clients of their calls, and other messages to no client.
package enum ProtocolEvent: Equatable, Sendable {
  case push
  /// The reply to a call, which repeats the id at this range (`ProtocolCapabilities.numberedIDs`).
  case reply(CallID, Range<Int>)
  /// The response to the pending setup step.
  case setupResponse
  /// The credentials are rejected. `text` is the beginning of the message; `isCut`: the message is longer.
  case refused(text: String, isCut: Bool)
  /// A heartbeat of the upstream.
  case heartbeat
  /// The response to a heartbeat that the gateway sent.
  case heartbeatResponse
  /// An event for clients.
  case event(ProtocolPush)
  /// The reply to a call.
  case acknowledged(ProtocolReply)
  /// The pong to a ping that was sent as a message; nil if the ping was a heartbeat.
  case pong(UInt64?)
  /// Changes to report. The meaning of the message follows.
  indirect case news(ProtocolNews)
  /// The server refuses the setup.
  indirect case denied(ProtocolRefusal)
  /// The server closes the connection normally, ends a required namespace, or reports that the connection has become
  /// useless.
  indirect case ended(String, forgetsCaptures: Bool = false)
  /// These calls can no longer get a reply.
  case callsEnded([UInt64])
  /// A violation of the protocol: the connection is closed with 1002.
  indirect case violation(String)
  /// The message needs no action of the session.
  case none
  /// A packet without a meaning in this state.
  case ignored
}

/// The state of an application protocol, which is kept when a connection ends.
package struct ProtocolMemory: Sendable {
  /// The subscriptions of clients.
  package var subscriptions: SubscriptionLedger
  /// The cursor of the last push that had a cursor.
  package var cursor: [UInt8]?
  /// The data that the upstream needs to restore the state of the last connection, by namespace. Empty while a
  /// connection sends.
  package var recoveries: [String: Continuation] = [:]
  /// The captured values that outlive connections.
  package var captures: [String: CapturedValue] = [:]
  /// A random number of the session. It distinguishes tokens of this session from tokens of other sessions.
  package let salt: UInt64

  package init(_ rules: SubscriptionRules, salt: UInt64 = 0) {
    subscriptions = SubscriptionLedger(rules)
    self.salt = salt
  }

  /// The changes that the messages of the upstream make.
  package struct Changes: Sendable {
    fileprivate var cursor: (before: [UInt8]?, after: [UInt8]?)?
    fileprivate var recoveries: [String: Continuation]?
  }

  package func changes(since before: ProtocolMemory) -> Changes {
    var changes = Changes()
    if cursor != before.cursor { changes.cursor = (before.cursor, cursor) }
    if recoveries != before.recoveries { changes.recoveries = recoveries }
    return changes
  }

  package mutating func apply(_ changes: Changes) {
    // Meanwhile, another connection may have delivered a later cursor.
    if let change = changes.cursor, cursor == change.before { cursor = change.after }
    if let recoveries = changes.recoveries { self.recoveries = recoveries }
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
