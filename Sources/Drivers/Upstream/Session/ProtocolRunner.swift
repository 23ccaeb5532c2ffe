import ByteStreams
import Calls
import Continuity
import Journal
import Logging
import Metrics
import Outbox
import Reactor
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Runs the application protocol on all connections of a session: setup messages, heartbeats, subscriptions.
///
/// The runner creates and sends these messages. For the driver, it turns each received message into an `Outcome`.
final class ProtocolRunner {
  private var memory: ProtocolMemory
  /// The setup step that was begun last, and the time at which it was begun. If the session waits for the response to a
  /// step, it waits for the response to this step.
  private var lastAwaited = (step: 0, since: MonotonicTime.zero)
  /// Whether there was a cursor when this step was begun.
  private var hadCursor = false
  private let loop: LoopContext
  private let logger: Logger
  private let metrics: UpstreamMetrics
  /// The number of subscriptions that this session has added to the metric. Several sessions may use one metric.
  private var countedSubscriptions = 0

  /// The kept values that the store does not have yet, and the client identity (`PreparedSettings.client`) of the
  /// connection that received the kept values. Empty if no values are kept.
  private var unstoredCaptures: Set<String> = []
  private var client: [UInt8] = []

  /// The journal of the session; nil if the session is not stored.
  private let journal: (any SessionJournal)?

  init(
    _ prepared: PreparedSettings, resuming resumed: ResumedProtocol, _ journal: (any SessionJournal)?,
    loop: LoopContext, logger: Logger, metrics: UpstreamMetrics
  ) {
    let settings = prepared.value
    if !settings.conventions.keptCaptures.isEmpty { client = prepared.client }
    memory = ProtocolMemory(settings.conventions.subscriptions, salt: loop.entropy.next())
    self.journal = journal
    self.loop = loop
    self.logger = logger
    self.metrics = metrics
    memory.cursor = resumed.cursor
    memory.recoveries = resumed.recoveries
    restore(resumed.captures, settings)
    var dropped: [[UInt8]] = []
    for subscription in resumed.subscriptions
    where !memory.subscriptions.restore(
      subscription.key, subscription.payload, kind: subscription.kind, isCall: subscription.isCall)
    {
      dropped.append(subscription.key)
    }
    drop(dropped)
  }

  /// The cursor of the last push that had a cursor.
  var cursor: [UInt8]? { memory.cursor }

  /// Stores the cursor that the response to the last setup step has set. No push brings it.
  func storeCursorOfSetup() {
    guard !hadCursor, let cursor = memory.cursor else { return }
    journal?.submit(.memory(.cursor(cursor)))
  }

  /// Forgets the cursor, since the upstream counts anew on the next connection.
  func forgetCursor() {
    guard memory.cursor != nil else { return }
    memory.cursor = nil
    journal?.submit(.memory(.cursor(nil)))
  }

  /// Applies new settings. The settings for subscriptions take effect with the next message. The other settings take
  /// effect with the next connection.
  func reconfigure(_ settings: UpstreamSettings) {
    drop(memory.subscriptions.change(settings.conventions.subscriptions))
    let kept = settings.conventions.keptCaptures
    forgetCaptures { !kept.contains($0) }
  }

  /// Drops subscriptions that the settings do not permit any more.
  private func drop(_ keys: [[UInt8]]) {
    count(memory.subscriptions.count)
    guard !keys.isEmpty else { return }
    logger.warning(
      "subscriptions that 'upstream.subscriptions' no longer permits are dropped", [.number("count", keys.count)]
    )
    for key in keys { journal?.submit(.memory(.unsubscribed(key: key))) }
  }

  // MARK: Setup

  /// Renders the setup messages from step `first` up to and including the next step that expects a response. Returns a
  /// report if a message cannot be rendered. Called before the session machine continues, since a step of the machine
  /// cannot be undone.
  func prepareSetup(_ connection: UpstreamConnection, from first: Int = 0) -> AttemptReport? {
    guard let conversation = connection.conversation else { return nil }
    let settings = connection.settings
    let (opening, declaration) = (settings.conventions.onOpen, connection.preparedSettings.declaration)
    let hasSecrets = !opening.isEmpty || declaration?.templates.isEmpty == false
    guard !hasSecrets || connection.hasConfiguredOrigin else {
      let sent = declaration.map { "'upstream.on_open' and '\($0.section)' are" } ?? "'upstream.on_open' is"
      return AttemptReport(
        .settingUp, .redirect,
        "redirected to \(connection.url?.redacted ?? ""), another origin: \(sent) sent to configured origins only")
    }
    var memory = memory
    // A client that knows the private id of a connection can claim its state, so only configured origins may get this
    // id.
    if !connection.hasConfiguredOrigin { (memory.recoveries, memory.captures) = ([:], [:]) }
    do throws(SetupError) {
      try conversation.state.prepareSetup(from: first, memory, now: loop.wallClock)
      return nil
    } catch {
      return AttemptReport(
        .settingUp, .preparation,
        "cannot create \(connection.preparedSettings.step(error.step).name): \(error.reason)")
    }
  }

  func sendSetup(step: Int, on connection: UpstreamConnection) -> Bool {
    guard let conversation = connection.conversation else { return false }
    let frames = conversation.state.beginSetup(step: step)
    lastAwaited = (step, loop.now)
    hadCursor = memory.cursor != nil
    var isSent = false
    for frame in frames {
      isSent = connection.send(PriorityMessage(.setup, kind: frame.kind, payload: frame.payload)) || isSent
    }
    return isSent
  }

  /// Whether a setup step that was begun is skipped.
  func skips(_ step: Int, on connection: UpstreamConnection) -> Bool {
    connection.conversation?.state.skips(step) == true
  }

  /// The description of a setup timeout, with the name of the setting that caused it.
  func setupTimeoutText(_ settings: PreparedSettings) -> String {
    let step = settings.step(lastAwaited.step)
    let steps = settings.value.session.setup
    let limit = lastAwaited.step < steps.count ? steps[lastAwaited.step].timeLimit : .zero
    let isOwn = loop.now - lastAwaited.since >= limit
    let key = step.timeoutKey.flatMap { isOwn ? $0 : nil } ?? "upstream.timeouts.on_open"
    return "\(step.missing) within the timeout ('\(key)')\(step.hint)"
  }

  // MARK: Messages of the upstream

  /// The meaning of a message for the session.
  enum Outcome {
    /// A message for clients. `unpackedKind`: see `Conversation.Reading`.
    case push(unpackedKind: MessageKind?)
    /// The reply to a call, with the range of its id in the message. If the call does not take the reply, the message
    /// is a push.
    case reply(CallID, Range<Int>, unpackedKind: MessageKind?)
    /// The response to this setup step.
    case setupResponseReceived(step: Int)
    case refused(AttemptReport)
    case heartbeat
    case heartbeatResponseReceived
    case lost(ConnectionLoss, String)
    case event(ProtocolPush)
    case acknowledged(ProtocolReply)
    case pong(UInt64?)
    /// The upstream has announced that it ends the connection.
    case ended(String, forgetsCaptures: Bool)
    case callsEnded([UInt64])
    indirect case news(ProtocolNews)
    case nothing
  }

  /// A copy of the memory, with which another thread processes a message.
  var memoryCopy: ProtocolMemory { memory }

  /// Uses the result of a thread that has processed a large message. `isCurrent` is as in the other function.
  func receive(
    _ message: PreparedMessage.Reading, from connection: UpstreamConnection, _ conversation: Conversation,
    isCurrent: Bool
  ) -> Outcome {
    conversation.adopt(message.conversation)
    memory.apply(message.memory)
    return outcome(of: message.reading, message.payload.bytes, connection, isCurrent: isCurrent)
  }

  /// Reads the message that `connection` reports. `isCurrent`: whether the connection is the sending connection. Only
  /// then can the message end subscriptions: a subscription that ends on a predecessor continues on its successor.
  func receive(
    _ kind: MessageKind, from connection: UpstreamConnection, _ conversation: Conversation, isCurrent: Bool
  ) -> Outcome {
    let reading = conversation.receive(connection.socket.payload, kind, &memory)
    // This use keeps the objects alive until here. Without it, the compiler could release them while their properties
    // are still being used.
    defer { withExtendedLifetime((connection, conversation)) {} }
    if case .event(_, unpackedKind: .some, isMalformed: _) = reading {
      return outcome(of: reading, conversation.decoder.decompressed, connection, isCurrent: isCurrent)
    }
    return outcome(of: reading, connection.socket.payload, connection, isCurrent: isCurrent)
  }

  @inline(__always)
  private func outcome(
    of reading: Conversation.Reading, _ payload: Span<UInt8>, _ connection: UpstreamConnection, isCurrent: Bool
  ) -> Outcome {
    switch reading {
    case .tooLarge:
      let limit = connection.settings.limits.messageBytes
      return .lost(
        .violation(code: 1009),
        "a compressed message of the upstream exceeds \(limit) bytes when decompressed ('upstream.message_bytes')")
    case .event(let event, let unpackedKind, let isMalformed):
      if isMalformed { metrics.malformedPayloads.add() }
      switch event {
      case .push, .reply:
        // The message may report the end of a subscription.
        if isCurrent { recordReceived(payload) }
        if case .reply(let call, let range) = event { return .reply(call, range, unpackedKind: unpackedKind) }
        return .push(unpackedKind: unpackedKind)
      default: return outcome(of: event, connection)
      }
    }
  }

  /// The next outcome of the last message; nil if the message has no further outcome.
  func next(from connection: UpstreamConnection, _ conversation: Conversation) -> Outcome? {
    conversation.state.next(&memory).map { outcome(of: $0, connection) }
  }

  /// Stops expecting the response to an optional setup step.
  func skipSetup(step: Int, on connection: UpstreamConnection, _ conversation: Conversation) -> Outcome {
    outcome(of: conversation.state.skipSetup(step: step), connection)
  }

  /// The outcome of a message that is not passed on unchanged.
  private func outcome(of event: ProtocolEvent, _ connection: UpstreamConnection) -> Outcome {
    switch event {
    case .push, .reply: return .nothing
    case .setupResponse: return .setupResponseReceived(step: lastAwaited.step)
    case .refused(let text, let isCut):
      let refusal = connection.mask.applied(to: text, isCut: isCut)
      let step = connection.preparedSettings.step(lastAwaited.step).name
      return .refused(
        AttemptReport(
          .settingUp, .denied,
          "the upstream refused the credentials in its response to \(step): \(refusal)"))
    case .heartbeat:
      metrics.receivedHeartbeats.add()
      return .heartbeat
    case .heartbeatResponse: return .heartbeatResponseReceived
    case .event(let push): return .event(push)
    case .acknowledged(let reply): return .acknowledged(reply)
    case .pong(let counter): return .pong(counter)
    case .denied(let refusal):
      let text = connection.mask.applied(to: refusal.text, isCut: refusal.isCut)
      return .refused(
        AttemptReport(.settingUp, refusal.isWrongVersion ? .wrongVersion : .denied, "\(refusal.sentence)\(text)"))
    case .ended(let reason, let forgetsCaptures): return .ended(reason, forgetsCaptures: forgetsCaptures)
    case .callsEnded(let ids): return .callsEnded(ids)
    case .violation(let reason):
      let name = connection.preparedSettings.declaration?.name ?? "the protocol"
      return .lost(.violation(code: 1002), "violation of \(name): \(reason)")
    case .news(let news): return .news(news)
    case .none: return .nothing
    case .ignored:
      metrics.ignoredPackets.add()
      return .nothing
    }
  }

  /// The sending connection ends. Keeps the data with which the next connection can request that the upstream restores
  /// the state. Returns whether no push will be missing if the upstream restores it.
  func saveState(of connection: UpstreamConnection) -> Bool {
    let continuations = connection.conversation?.state.continuations ?? [:]
    memory.recoveries = continuations.filter { $0.value.offset != nil }
    return continuations.values.areComplete
  }

  /// Whether the next connection requests that the upstream restores a state.
  var hasState: Bool { !memory.recoveries.isEmpty }

  /// Forgets the state. Called when another connection begins to send, since the next successor in a hand-over must not
  /// claim this state. Also called when the next connection identifies itself as another client.
  func forgetState() { if !memory.recoveries.isEmpty { memory.recoveries = [:] } }

  // MARK: Acknowledgements

  /// Maximum size of an acknowledgement, in bytes. The upstream chooses the values that an acknowledgement repeats, and
  /// acknowledgements stay in memory while the upstream reads nothing. Ids are much shorter than this limit.
  private static var acknowledgementLimit: Int { 4 << 10 }

  /// The message that acknowledges the last push. Like setup messages, it goes to configured origins only.
  ///
  /// - Parameter prepared: the message, if another thread has made it.
  func takeAcknowledgement(
    of connection: UpstreamConnection, _ conversation: Conversation,
    _ prepared: Result<PushAcknowledgement?, TemplateError>?
  ) -> PushAcknowledgement? {
    do throws(TemplateError) {
      let acknowledgement =
        if let prepared { try prepared.get() } else {
          try conversation.state.takeAcknowledgement(memory, now: loop.wallClock)
        }
      guard let acknowledgement, connection.hasConfiguredOrigin else { return nil }
      let size = acknowledgement.frame.payload.count
      guard size > Self.acknowledgementLimit else { return acknowledgement }
      warnOfAcknowledgement("it has \(size) bytes; the maximum is \(Self.acknowledgementLimit)", conversation)
    } catch {
      warnOfAcknowledgement(error.description, conversation)
    }
    return nil
  }

  /// Logs a warning once per connection.
  private func warnOfAcknowledgement(_ reason: String, _ conversation: Conversation) {
    guard !conversation.hasWarnedOfAcknowledgement else { return }
    conversation.hasWarnedOfAcknowledgement = true
    logger.warning("a push is not acknowledged ('upstream.acknowledge')", [.text("reason", reason)])
  }

  // MARK: Captures

  /// The captured values that outlive connections.
  var keptCaptures: [String: CapturedValue] { memory.captures }

  /// Restores the values of an earlier process. Drops values that were received under another client identity, since
  /// they may be secrets of that identity or of another server.
  private func restore(_ captures: [String: StoredCapture], _ settings: UpstreamSettings) {
    memory.captures = captures.mapValues(\.value)
    let kept = settings.conventions.keptCaptures
    forgetCaptures { !kept.contains($0) || captures[$0]?.client != client }
  }

  /// Keeps the values that outlive the connection.
  func keep(_ values: [String: CapturedValue], _ settings: PreparedSettings) {
    let kept = settings.value.conventions.keptCaptures
    // Without kept values, the client identity is computed each time it is read.
    guard !kept.isEmpty else { return }
    client = settings.client
    for name in kept {
      guard let value = values[name], value != memory.captures[name] else { continue }
      memory.captures[name] = value
      if journal != nil { unstoredCaptures.insert(name) }
    }
  }

  /// The changes that are not submitted to the store yet.
  func takeUnstoredCaptures() -> [MemoryChange] {
    guard !unstoredCaptures.isEmpty else { return [] }
    defer { unstoredCaptures = [] }
    return unstoredCaptures.sorted().compactMap { name in
      memory.captures[name].map { .captured(name: name, StoredCapture(value: $0, client: client)) }
    }
  }

  /// Forgets all kept values. Called when the next connection identifies itself as another client or leads to another
  /// server.
  func forgetCaptures() { forgetCaptures { _ in true } }

  /// Forgets one kept value.
  func forgetCapture(_ name: String) { forgetCaptures { $0 == name } }

  private func forgetCaptures(where isObsolete: (String) -> Bool) {
    for name in memory.captures.keys.filter(isObsolete) {
      memory.captures[name] = nil
      unstoredCaptures.remove(name)
      journal?.submit(.memory(.captured(name: name, nil)))
    }
  }

  // MARK: Heartbeats

  func sendHeartbeat(_ counter: UInt64, on connection: UpstreamConnection) -> Bool {
    if connection.sendsMessagePing(nil) {
      metrics.sentHeartbeats.add()
      return true
    }
    do throws(TemplateError) {
      guard let message = try connection.conversation?.state.heartbeat(counter, memory, now: loop.wallClock) else {
        return false
      }
      metrics.sentHeartbeats.add()
      let kind = connection.settings.conventions.client.message?.kind ?? .text
      return connection.send(PriorityMessage(.heartbeat, kind: kind, payload: message))
    } catch {
      logger.warning("cannot create a heartbeat", [.text("reason", error.description)])
      return false
    }
  }

  /// Responds to the heartbeat that was received last.
  func reply(on connection: UpstreamConnection) -> Bool {
    do throws(TemplateError) {
      guard let message = try connection.conversation?.state.heartbeatReply(memory, now: loop.wallClock) else {
        return false
      }
      let kind = connection.settings.conventions.server.reply?.kind ?? .text
      return connection.send(PriorityMessage(.reply, kind: kind, payload: message))
    } catch {
      logger.warning("cannot create the reply to a heartbeat of the upstream", [.text("reason", error.description)])
      return false
    }
  }

  // MARK: The end

  /// Sends the messages of `upstream.on_close`, and returns their number. Like setup messages, they go to configured
  /// origins only.
  func sendLastMessages(on connection: UpstreamConnection) -> Int {
    guard !connection.settings.conventions.onClose.isEmpty, connection.hasConfiguredOrigin,
      let conversation = connection.conversation
    else { return 0 }
    do throws(TemplateError) {
      return connection.sendBeforeClose(try conversation.state.lastMessages(memory, now: loop.wallClock))
    } catch {
      logger.warning("cannot create a message of 'upstream.on_close'", [.text("reason", error.description)])
      return 0
    }
  }

  // MARK: Subscriptions

  /// Records that a client's message was sent. The subscription that it makes is stored only now: a message that is
  /// still queued will be sent from the queue, and must not also be sent as a stored subscription. Returns the ticket
  /// of the change; nil if there is no change to store.
  func recordSent(_ message: OutboxMessage, _ correlation: Correlation?) -> JournalTicket? {
    handle(
      memory.subscriptions.sent(
        message.payload, kind: message.kind, message: message.sequence, by: message.client,
        callID: message.reportsEnd ? correlation?.request : nil, isNumbered: correlation?.ids == .sequence))
  }

  /// Sends the messages of all subscriptions again, once per connection, ahead of the outbox. Returns the number of
  /// these messages.
  ///
  /// - Parameter progress: returns the progress of the client's message with this number. Some messages of
  ///   subscriptions are sent again by the queue. Others have ended without being sent, for example because they were
  ///   too large for the upstream.
  func resubscribe(on connection: UpstreamConnection, _ progress: (UInt64) -> DeliveryProgress) -> Int {
    guard !connection.hasResubscribed else { return 0 }
    connection.hasResubscribed = true
    return memory.subscriptions.messages.count { entry in
      switch entry.message.map(progress) ?? .taken {
      case .waiting: return false
      case .notSent:
        handle(memory.subscriptions.drop(entry))
        return false
      case .taken: return sendAgain(entry, on: connection)
      }
    }
  }

  private func sendAgain(_ entry: SubscriptionLedger.Entry, on connection: UpstreamConnection) -> Bool {
    let rules = memory.subscriptions.rules
    guard !rules.replacements.isEmpty else {
      return connection.sendAgain(entry.payload, entry.kind, isCall: entry.isCall)
    }
    do throws(TemplateError) {
      let captures = connection.conversation?.state.captures ?? [:]
      let message = try rules.replacing(entry.payload, kind: entry.kind, with: captures)
      return connection.sendAgain(message, entry.kind, isCall: entry.isCall)
    } catch {
      logger.warning(
        "a subscription is not sent again on this connection ('upstream.subscriptions.replace')",
        [.text("reason", error.description)])
      return false
    }
  }

  private func recordReceived(_ payload: Span<UInt8>) { handle(memory.subscriptions.received(payload)) }

  @discardableResult
  private func handle(_ effect: SubscriptionLedger.Effect) -> JournalTicket? {
    let ticket = journal.flatMap { journal in
      memory.subscriptions.change(after: effect).map { journal.submit(.memory($0)) }
    }
    switch effect {
    case .none: return nil
    case .stored, .removed: break
    case .full(let refusal):
      let rules = memory.subscriptions.rules
      logger.warning(
        "a limit of upstream.subscriptions is reached: a subscription will not be sent again on the next connection",
        [
          .text("limit", "upstream.subscriptions.\(refusal.limit.rawValue)"),
          .text("used_by", refusal.isOfClient ? "its client" : "all clients"),
          .number("subscriptions", memory.subscriptions.count), .number("entries", rules.entries),
          .number("bytes", rules.bytes),
        ])
    }
    count(memory.subscriptions.count)
    return ticket
  }

  private func count(_ subscriptions: Int) {
    metrics.subscriptions.add(subscriptions - countedSubscriptions)
    countedSubscriptions = subscriptions
  }

  func end() { count(0) }
}
