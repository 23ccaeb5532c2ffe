import ByteStreams
import Continuity
import Events
import JSONCodec
import SocketIO

/// Engine.IO and Socket.IO over one WebSocket connection. Outgoing messages are `EventRecord`s.
///
/// The first setup steps are the open packet and the CONNECT of each namespace. The steps of `upstream.on_open` follow.
/// The messages of the configuration are envelopes (`EventEnvelope`), and its matchers and pointers read the array of
/// an event: `["chat","hi"]`.
package struct SocketIOProtocol: UpstreamProtocol {
  /// Maximum number of events that arrive before the response to a CONNECT. Applications send only a few.
  private static var earlyLimit: Int { 1_000 }
  /// Like `earlyLimit`, if the CONNECT requests the events of an outage: a server remembers the events of two minutes.
  /// This is also the limit for the early events of all namespaces together.
  private static var recoveredLimit: Int { 65_536 }
  /// Maximum size of all early events together, as a multiple of the largest message.
  private static var recoveredMessages: Int { 4 }

  let settings: SocketIOSettings
  let joined: [SocketIOSettings.Namespace]
  var conversation: SocketIOConversation
  /// The messages of the configuration.
  var own: PlainProtocol
  private let examinesEvents: Bool
  private var values = TemplateValues()
  /// The CONNECT of each namespace.
  private var credentials: [[UInt8]] = []
  private var awaited: Int?
  private(set) var statuses: [NamespaceStatus]
  private var early: [SocketIOContent] = []
  /// Number and size of the early events of each namespace.
  private var earlySizes: [(count: Int, bytes: Int)]
  /// Early events whose namespace is connected, in their order, from `nextReleased` on.
  private var released: [SocketIOContent] = []
  private var nextReleased = 0
  /// Whether the server has violated the protocol while it was to restore a namespace. The restored events may be the
  /// reason, so the next connection does not request them.
  private(set) var isBroken = false
  private(set) var pingContent: [UInt8] = []
  /// The pings of Engine.IO 3 without a pong, oldest first; nil for a heartbeat.
  var pings = RingDeque<UInt64?>(filler: nil)
  private var news: ProtocolNews?
  /// The meaning that `next` returns first: the meaning of a message whose news was already returned, or the outcome of
  /// a setup step that was not sent.
  private var pending: ProtocolEvent?
  /// The number of the connection.
  private(set) var connection: UInt64 = 0
  /// Distinguishes the tokens of this session from the tokens of other sessions.
  private var salt: UInt64 = 0

  /// - Parameter messageBytes: maximum size of an event with its attachments.
  package init(_ conventions: UpstreamConventions, messageBytes: Int) {
    settings = conventions.socketIO
    joined = settings.joined
    own = PlainProtocol(conventions)
    examinesEvents = conventions.examinesMessages
    var limits = SocketIOLimits()
    limits.attachments = settings.attachments
    limits.messageBytes = messageBytes
    conversation = SocketIOConversation(settings.version, namespaces: joined.map(\.name), limits)
    earlySizes = joined.map { _ in (0, 0) }
    statuses = joined.map { NamespaceStatus(name: $0.name, isRequired: $0.isRequired, state: .connecting) }
  }

  package var capabilities: ProtocolCapabilities {
    settings.capabilities.union(own.capabilities.intersection(.captures))
  }
  /// The setup step whose response is pending, if any.
  var awaitedStep: Int? { awaited ?? own.awaitedStep.map { $0 + setupSteps } }
  /// The number of setup steps before the steps of `upstream.on_open`.
  private var setupSteps: Int { 1 + joined.count }

  package mutating func begin(connection: UInt64, _ secrets: TemplateValues) {
    self.connection = connection
    values = secrets
    own.begin(connection: connection, secrets)
  }

  // MARK: Setup

  package mutating func prepareSetup(from first: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError) {
    awaited = nil
    if first == 0 {
      salt = memory.salt
      try prepareConnects(memory, now: now)
    }
    let offset = setupSteps
    guard first >= offset else { return }
    do throws(SetupError) {
      try own.prepareSetup(from: first - offset, memory, now: now)
    } catch {
      throw SetupError(step: error.step + offset, reason: error.reason)
    }
    for (step, message) in own.prepared {
      do throws(TemplateError) {
        _ = try parts(ofEnvelope: message.bytes)
      } catch {
        throw SetupError(step: step + offset, reason: error)
      }
    }
  }

  private mutating func prepareConnects(_ memory: ProtocolMemory, now: Int64) throws(SetupError) {
    values.now = now
    values.cursor = memory.cursor
    values.captures = memory.captures
    credentials = []
    for (index, namespace) in joined.enumerated() {
      conversation.setRecovery(memory.recoveries[namespace.name], of: index)
      var text: [UInt8] = []
      do throws(TemplateError) {
        if memory.cursor == nil, let initial = own.initialCursor { values.cursor = try initial.rendered(with: values) }
        text = try settings.credentials(of: namespace, values)
        if settings.version == .four, !text.isEmpty {
          guard JSONValidator.isValid(text.span), JSONObject(text.span) != nil else { throw .notObject }
        }
      } catch {
        throw SetupError(step: index + 1, reason: error)
      }
      credentials.append(text)
    }
  }

  package mutating func beginSetup(step: Int) -> [ProtocolFrame] {
    let offset = setupSteps
    guard step < offset else {
      awaited = nil
      let messages = own.beginSetup(step: step - offset)
      var frames: [ProtocolFrame] = []
      for message in messages { frames += openingFrames(message, step: step) }
      return frames
    }
    awaited = step
    guard step > 0 else { return [] }
    var output = ByteQueue()
    let credentials = credentials[step - 1]
    _ = conversation.connect(step - 1, credentials: credentials.span, into: &output)
    return output.isEmpty ? [] : [ProtocolFrame(ByteString(copying: output.bytes))]
  }

  /// Skips an optional namespace whose response has not arrived in time. The response may arrive later.
  package mutating func skipSetup(step: Int) -> ProtocolEvent {
    guard awaited == step, step > 0 else { return .none }
    awaited = nil
    statuses[step - 1].reason = "the server has not responded to its CONNECT"
    publish()
    return takeNews().map(ProtocolEvent.news) ?? .none
  }

  private mutating func openingFrames(_ message: ProtocolFrame, step: Int) -> [ProtocolFrame] {
    // `prepareSetup` has checked the envelope.
    guard let record = try? parts(ofEnvelope: message.payload.bytes).record else { return [] }
    let (result, frames) = frames(of: record)
    switch result {
    case .written: break
    case .notConnected:
      // An optional namespace that is not connected will not send the response of this step.
      if awaitedStep != nil { pending = .setupResponse }
    case .tooLarge:
      pending = .denied(
        ProtocolRefusal(
          isWrongVersion: false,
          sentence:
            "\(ProtocolStep(onOpen: step - setupSteps).name) is larger than the server accepts (its 'maxPayload')",
          text: "", isCut: false))
    }
    return frames
  }

  /// Whether the pending setup step waits for the response of this namespace, which has now arrived or become
  /// impossible. If so, the step is no longer pending.
  private mutating func isAwaited(_ namespace: Int) -> Bool {
    guard awaited == namespace + 1 else { return false }
    awaited = nil
    return true
  }

  // MARK: Captures

  package var captures: [String: CapturedValue] { own.captures }

  package mutating func takeCaptureNews() -> CaptureNews? { own.takeCaptureNews() }

  // MARK: Messages of the server

  package var incompleteBytes: Int { conversation.gatheredBytes }

  package mutating func receive(
    _ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory
  ) -> ProtocolEvent {
    precededByNews(examine(payload, kind, &memory))
  }

  /// Returns the pending news before the meaning of the message that has caused the news.
  private mutating func precededByNews(_ event: ProtocolEvent) -> ProtocolEvent {
    guard let news = takeNews() else { return event }
    pending = event
    return .news(news)
  }

  private mutating func examine(
    _ payload: Span<UInt8>, _ kind: MessageKind, _ memory: inout ProtocolMemory
  ) -> ProtocolEvent {
    let event: SocketIOEvent
    do throws(SocketIOViolation) {
      event = try conversation.receive(payload, kind)
    } catch {
      return violated(error.description, &memory)
    }
    switch event {
    case .opened(let handshake): return opened(handshake)
    case .ping(let content):
      pingContent = [UInt8](copying: payload.extracting(content))
      return .heartbeat
    case .pong:
      guard !pings.isEmpty else { return .ignored }
      let counter = pings[pings.front]
      pings.removeFirst()
      return .pong(counter)
    case .connected(let namespace, let isRecovered): return connected(namespace, isRecovered: isRecovered)
    case .refused(let namespace, let refusal): return refused(namespace, refusal)
    case .disconnected(let namespace): return ended(namespace, .disconnected, nil, "disconnected the namespace")
    case .push(let content):
      if let text = content.text { return received(content, text.span, &memory) }
      return received(content, payload, &memory)
    case .early(let content): return receivedEarly(content, &memory)
    case .acknowledged(let content):
      if let text = content.text { return acknowledged(content, text.span) }
      return acknowledged(content, payload)
    case .closed: return .ended("the server closed the Engine.IO connection")
    case .partial: return .none
    case .ignored: return .ignored
    }
  }

  private mutating func opened(_ handshake: EngineIOHandshake) -> ProtocolEvent {
    var heartbeats = ProtocolNews.Heartbeats()
    switch EngineIOHeartbeat(handshake, settings.version) {
    case .fromServer(let within): heartbeats.within = within
    case .fromClient(let interval, let timeout): (heartbeats.interval, heartbeats.timeout) = (interval, timeout)
    }
    update {
      $0.heartbeats = heartbeats
      $0.maximumPayload = handshake.maximumPayload
    }
    publish()
    awaited = nil
    return .setupResponse
  }

  private mutating func connected(_ namespace: Int, isRecovered: Bool) -> ProtocolEvent {
    statuses[namespace].state = .connected
    statuses[namespace].reason = nil
    publish()
    if !isRecovered { update { $0.isStateLost = true } }
    released += early.filter { $0.namespace == namespace }
    forgetEarly(of: namespace)
    return isAwaited(namespace) ? .setupResponse : .none
  }

  private mutating func refused(_ namespace: Int, _ refusal: SocketIORefusal) -> ProtocolEvent {
    let name = joined[namespace].name
    if refusal.reason == .wrongVersion {
      return .denied(
        ProtocolRefusal(
          isWrongVersion: true,
          sentence:
            "the server speaks Engine.IO 3 (Socket.IO 1 or 2), since its CONNECT has no 'sid'; set 'upstream.socketio.version' to 3",
          text: "", isCut: false))
    }
    let wasConnected = statuses[namespace].state == .connected
    guard joined[namespace].isRequired, !wasConnected else {
      return ended(namespace, .refused, refusal.text, "refused the namespace")
    }
    forgetEarly(of: namespace)
    statuses[namespace].state = .refused
    statuses[namespace].reason = refusal.text
    publish()
    let reason = refusal.text.isEmpty ? "" : ": "
    return .denied(
      ProtocolRefusal(
        isWrongVersion: false, sentence: "the server refused the namespace '\(name)'\(reason)", text: refusal.text,
        isCut: refusal.isCut))
  }

  private mutating func ended(
    _ namespace: Int, _ state: NamespaceStatus.State, _ reason: String?, _ verb: String
  ) -> ProtocolEvent {
    forgetEarly(of: namespace)
    statuses[namespace].state = state
    statuses[namespace].reason = reason
    publish()
    guard !joined[namespace].isRequired else { return .ended("the server \(verb) '\(joined[namespace].name)'") }
    if isAwaited(namespace) { return .setupResponse }
    return .callsEnded(conversation.takeExpected(namespace: namespace))
  }

  private mutating func publish() {
    let statuses = statuses
    update { $0.namespaces = statuses }
  }

  private mutating func update(_ body: (inout ProtocolNews) -> Void) {
    var current = news ?? ProtocolNews()
    body(&current)
    news = current
  }

  private mutating func takeNews() -> ProtocolNews? {
    defer { news = nil }
    return news
  }

  // MARK: Events

  private mutating func received(
    _ content: SocketIOContent, _ text: Span<UInt8>, _ memory: inout ProtocolMemory
  ) -> ProtocolEvent {
    if examinesEvents {
      let end = content.arguments.isEmpty ? content.name.upperBound : content.arguments.upperBound
      var array = ByteQueue()
      array.append(UInt8(ascii: "["))
      array.append(text.extracting(content.name.lowerBound..<end))
      array.append(UInt8(ascii: "]"))
      let meaning = own.receive(array.bytes, kind: .text, &memory)
      if meaning != .push {
        // No client sees the event, so the gateway always acknowledges it.
        if let acknowledgement = acknowledgement(content) { update { $0.acknowledgement = acknowledgement } }
        return meaning
      }
    }
    return .event(push(content, text))
  }

  /// Keeps an early event until its namespace is connected and the next setup step has begun, since the event may be
  /// the response to that step.
  private mutating func receivedEarly(_ content: SocketIOContent, _ memory: inout ProtocolMemory) -> ProtocolEvent {
    let namespace = content.namespace
    earlySizes[namespace].count += 1
    earlySizes[namespace].bytes += content.size
    early.append(content)
    let isRecovering = isRecovering(namespace)
    let events = isRecovering ? Self.recoveredLimit : Self.earlyLimit
    let largest = conversation.limits.messageBytes
    let bytes = largest * (isRecovering ? Self.recoveredMessages : 1)
    let (count, size) = earlySizes[namespace]
    guard count <= events, size <= bytes, early.count <= Self.recoveredLimit,
      earlySizes.reduce(0, { $0 + $1.bytes }) <= largest * Self.recoveredMessages
    else {
      return violated("more than \(events) events or \(bytes) bytes arrived before the response to CONNECT", &memory)
    }
    return .none
  }

  /// Returns the next meaning of the last message (`UpstreamProtocol.next`). A message that connects a namespace also
  /// has the meanings of the early events that it releases.
  package mutating func next(_ memory: inout ProtocolMemory) -> ProtocolEvent? {
    if let event = pending {
      pending = nil
      return event
    }
    guard nextReleased < released.count else {
      if nextReleased > 0 { (released, nextReleased) = ([], 0) }
      return nil
    }
    let content = released[nextReleased]
    nextReleased += 1
    conversation.keepOffset(of: content)
    guard conversation.isConnected(content.namespace), let text = content.text else { return ProtocolEvent.none }
    return precededByNews(received(content, text.span, &memory))
  }

  /// Whether the server was requested to restore the state of a namespace, and has not responded.
  private func isRecovering(_ namespace: Int) -> Bool {
    statuses[namespace].state == .connecting && conversation.recovery(namespace)?.offset != nil
  }

  /// Handles a violation. During a recovery, the next connection would repeat the violation if it requested the same
  /// events again, so the data for recovery is removed.
  private mutating func violated(_ reason: String, _ memory: inout ProtocolMemory) -> ProtocolEvent {
    if statuses.indices.contains(where: isRecovering) {
      isBroken = true
      memory.recoveries = [:]
    }
    return .violation(reason)
  }

  private mutating func forgetEarly(of namespace: Int) {
    guard !early.isEmpty else { return }
    early.removeAll { $0.namespace == namespace }
    earlySizes[namespace] = (0, 0)
  }

  private mutating func push(_ content: SocketIOContent, _ text: Span<UInt8>) -> ProtocolPush {
    var token: [UInt8] = []
    if settings.acknowledgements == .client, let id = content.id {
      token = Array("a-\(String(salt, radix: 36)).\(connection).\(content.namespace).\(id)".utf8)
    }
    let nameToken = text.extracting(content.name)
    let name = content.hasUnpairedSurrogates ? [] : JSONString.content(of: nameToken) ?? [UInt8](copying: nameToken)
    let namespace = conversation.name(of: content.namespace)
    var output = ByteQueue(capacity: text.count + 64)
    EventParts.write(
      content.hasUnpairedSurrogates ? .rawEvent : .event, id: token.isEmpty ? 0 : content.id ?? 0,
      connection: token.isEmpty ? 0 : connection, namespace: namespace.span, name: name.span,
      arguments: content.hasUnpairedSurrogates ? text : text.extracting(content.arguments),
      attachments: content.attachments, token: token.span, into: &output)
    let stored = settings.acknowledgements == .stored ? acknowledgement(content) : nil
    let recovery = conversation.recovery(content.namespace)
    return ProtocolPush(
      record: ByteString(output.copyBytes()), acknowledgement: stored,
      recovery: recovery?.offset == nil ? nil : recovery)
  }

  /// The empty acknowledgement of an event that requests an acknowledgement.
  private mutating func acknowledgement(_ content: SocketIOContent) -> ByteString? {
    guard settings.acknowledgements != .off, let id = content.id else { return nil }
    conversation.settle(id, namespace: content.namespace)
    var output = ByteQueue()
    conversation.writeAcknowledgementHead(id, attachments: 0, namespace: content.namespace, into: &output)
    output.append(SocketIOPacket.argumentsEnd)
    return ByteString(copying: output.bytes)
  }
}
