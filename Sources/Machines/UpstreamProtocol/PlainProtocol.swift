import ByteStreams
import Calls
import Continuity

/// Passes messages on unchanged, and adds the messages of the configuration (`upstream.on_open`, `.heartbeat`,
/// `.cursor`).
package struct PlainProtocol: UpstreamProtocol {
  /// If a message rejects the credentials, at most this many bytes of it are reported. They are enough for a sentence.
  private static var refusalTextLimit: Int { 256 }

  /// All connections with the same settings use one object.
  private let boxedConventions: Boxed<UpstreamConventions>
  private var conventions: UpstreamConventions {
    _read { yield boxedConventions.value }
  }
  package let capabilities: ProtocolCapabilities
  /// Values for the placeholders of templates.
  private var values = TemplateValues()
  /// Setup messages that are rendered but not sent yet, by step.
  private(set) var prepared: [Int: ByteString] = [:]
  package private(set) var awaitedStep: Int?
  /// The last number that was written for `${sequence}`.
  private var lastSequence: UInt32 = 0
  private var numberedIDs: NumberedIDs?
  /// The acknowledgement of the last push.
  private var due: UpstreamConventions.Acknowledgement?
  /// The meaning of a message that also shows that the service has not resumed. `next` returns this meaning after that
  /// news.
  private var pending: ProtocolEvent?
  /// nil if no values are captured.
  private var captured: Captures?
  /// Whether the upstream has said that the cursor is of no more use. Later messages of the connection set none.
  private var hasForgottenCursor = false
  /// The encoded texts of the setup messages. The service may repeat a text of the login at any time, so these texts
  /// are kept as long as the connection.
  private var encodedTextsOfSetup: [[UInt8]] = []
  /// The encoded texts that were rendered last for other messages, oldest first.
  private var latestEncodedTexts: [[UInt8]] = []
  package var encodedTexts: [[UInt8]] { encodedTextsOfSetup + latestEncodedTexts }
  /// Maximum number of `latestEncodedTexts`. Each message has only a few, and a service repeats a text of a heartbeat
  /// soon or not at all.
  private static var encodedTextLimit: Int { 32 }

  package init(_ conventions: UpstreamConventions) { self.init(Boxed(conventions)) }

  package init(_ boxed: Boxed<UpstreamConventions>) {
    boxedConventions = boxed
    let conventions = boxed.value
    var capabilities: ProtocolCapabilities = conventions.examinesMessages ? .examination : []
    if conventions.server.match == nil { capabilities.insert(.anyMessageIsHeartbeat) }
    if let correlation = conventions.correlation, correlation.ids == .sequence {
      numberedIDs = NumberedIDs(correlation)
      capabilities.formUnion([.encoding, .numberedIDs])
    }
    captured = Captures(conventions.captures)
    if captured != nil { capabilities.insert(.captures) }
    if !conventions.acknowledgements.isEmpty { capabilities.insert(.acknowledgements) }
    if conventions.onOpen.contains(where: { $0.resumed != nil }) {
      capabilities.formUnion([.continuations, .severalMeanings])
    }
    self.capabilities = capabilities
  }

  package mutating func begin(connection: UInt64, _ secrets: TemplateValues) { values = secrets }

  // MARK: Setup

  package mutating func prepareSetup(from first: Int, _ memory: ProtocolMemory, now: Int64) throws(SetupError) {
    awaitedStep = nil
    if first == 0 { captured?.begin(with: memory.captures) }
    for step in first..<max(first, conventions.onOpen.count) {
      if let template = conventions.onOpen[step].send, !skips(step) {
        do throws(TemplateError) {
          prepared[step] = try render(template, memory, now: now, isSetup: true)
        } catch {
          throw SetupError(step: step, reason: error)
        }
      }
      if conventions.onOpen[step].expect != nil { return }
    }
  }

  /// Whether the condition of a setup step does not hold.
  package func skips(_ step: Int) -> Bool {
    guard step < conventions.onOpen.count, let condition = conventions.onOpen[step].condition else { return false }
    return (captured?.values[condition.capture] != nil) != condition.isCaptured
  }

  /// If the skipped step was to resume, the upstream has not resumed, and its state counts as lost.
  package mutating func skipSetup(step: Int) -> ProtocolEvent {
    // The response to a later step may already be awaited.
    if awaitedStep == step { awaitedStep = nil }
    return conventions.onOpen[step].resumed == nil ? .none : Self.stateLost
  }

  package mutating func beginSetup(step: Int) -> [ProtocolFrame] {
    awaitedStep = conventions.onOpen[step].expect == nil || skips(step) ? nil : step
    let kind = conventions.onOpen[step].send?.kind ?? .text
    return prepared.removeValue(forKey: step).map { [ProtocolFrame($0, kind)] } ?? []
  }

  package mutating func lastMessages(
    _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> [ProtocolFrame] {
    var frames: [ProtocolFrame] = []
    for template in conventions.onClose {
      frames.append(ProtocolFrame(try render(template, memory, now: now), template.kind))
    }
    return frames
  }

  /// The cursor before the first push.
  var initialCursor: Template? { conventions.cursor.initial }

  // MARK: Messages

  package mutating func receive(
    _ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory
  ) -> ProtocolEvent {
    // The response to a setup step may have a value for the next step.
    captured?.receive(payload)
    switch conventions.meaning(of: payload, awaited: awaitedStep) {
    case .push:
      if kind.isText, let match = numberedIDs?.reply(payload) {
        return match.isIgnored ? .none : .reply(match.call, match.range)
      }
      if let cursor = conventions.cursor(in: payload), !hasForgottenCursor { memory.cursor = cursor }
      captured?.notePush()
      if !conventions.acknowledgements.isEmpty { noteAcknowledgement(of: payload) }
      return .push
    case .setupResponse:
      values.triggeringMessage = [UInt8](copying: payload)
      noteFirstCursor(in: payload, &memory)
      return setupResponse(payload)
    case .refusal:
      let text = payload.extracting(first: Self.refusalTextLimit).text()
      return .refused(text: text, isCut: payload.count > Self.refusalTextLimit)
    case .failure(let failure):
      if failure.forgetsCaptures { hasForgottenCursor = true }
      return .ended("the upstream ended the session: \(failure.cause)", forgetsCaptures: failure.forgetsCaptures)
    case .heartbeat:
      if conventions.server.reply != nil { values.triggeringMessage = [UInt8](copying: payload) }
      return .heartbeat
    case .heartbeatResponse:
      return .heartbeatResponse
    }
  }

  // MARK: Resuming

  /// The service restores its state on the next connection, as far as it can. The setup messages contain the data that
  /// it needs for this. The values here only mark the state as restorable.
  package var continuations: [String: Continuation] {
    capabilities.contains(.continuations) ? ["/": Continuation(pid: [1], offset: [1])] : [:]
  }

  /// The meaning of the response to a setup step: if the service has not resumed, pushes may be missing.
  private mutating func setupResponse(_ payload: Span<UInt8>) -> ProtocolEvent {
    guard let step = awaitedStep, let resumed = conventions.onOpen[step].resumed, !resumed.matches(payload) else {
      return .setupResponse
    }
    pending = .setupResponse
    return Self.stateLost
  }

  /// The response to a login may already count: the upstream resumes after it if no push follows. The response of an
  /// upstream that resumes may precede the pushes that it repeats, so it does not change the cursor.
  private func noteFirstCursor(in payload: Span<UInt8>, _ memory: inout ProtocolMemory) {
    guard memory.cursor == nil, !hasForgottenCursor, conventions.cursor.match != nil, let step = awaitedStep,
      conventions.onOpen[step].resumed == nil
    else { return }
    memory.cursor = conventions.cursor(in: payload)
  }

  private static var stateLost: ProtocolEvent {
    var news = ProtocolNews()
    news.isStateLost = true
    return .news(news)
  }

  package mutating func next(_ memory: inout ProtocolMemory) -> ProtocolEvent? {
    defer { pending = nil }
    return pending
  }

  // MARK: Acknowledgements

  private mutating func noteAcknowledgement(of payload: Span<UInt8>) {
    due = conventions.acknowledgements.first { $0.match.matches(payload) }
    if due != nil { values.triggeringMessage = [UInt8](copying: payload) }
  }

  package mutating func takeAcknowledgement(
    _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> PushAcknowledgement? {
    guard let rule = due else { return nil }
    defer { (due, values.triggeringMessage) = (nil, []) }
    if let name = captured?.staleValue(among: rule.send.captures) { throw .noCaptureInPush(name) }
    let frame = ProtocolFrame(try render(rule.send, memory, now: now), rule.send.kind)
    return PushAcknowledgement(frame: frame, isAfterStoring: rule.moment == .stored)
  }

  // MARK: Captures

  package var captures: [String: CapturedValue] { captured?.values ?? [:] }

  package mutating func takeCaptureNews() -> CaptureNews? { captured?.takeNews() }

  package var capturesToKeep: [String: CapturedValue] { captured?.valuesToKeep ?? [:] }

  package mutating func forgetKept(withCursor: Bool) {
    if withCursor { hasForgottenCursor = true }
    captured?.forgetKept()
  }

  // MARK: Numbered ids

  package mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, isCall: Bool, _ write: (MessageParts, MessageKind) -> Void
  ) -> EncodingResult {
    guard kind.isText, let (range, number) = numberedIDs?.number(payload, isCall: isCall) else {
      write(MessageParts(payload), kind)
      return .written
    }
    let digits = Array(String(number).utf8)
    let (head, tail) = (
      payload.extracting(first: range.lowerBound), payload.extracting(range.upperBound..<payload.count)
    )
    guard payload.count >= LargeSlice.smallest else {
      write(MessageParts(head: head, digits.span, tail: tail), kind)
      return .written
    }
    // The larger part is the content, since a large content is not copied into the output.
    var rest = ByteQueue(capacity: min(head.count, tail.count) + digits.count)
    if head.count > tail.count {
      rest.append(digits)
      rest.append(tail)
      write(MessageParts(head, tail: rest.bytes), kind)
    } else {
      rest.append(head)
      rest.append(digits)
      write(MessageParts(head: rest.bytes, tail), kind)
    }
    return .written
  }

  package mutating func takeAssignedNumbers() -> [(call: CallID, number: UInt32)] { numberedIDs?.takeAssigned() ?? [] }

  package var mustForgetCalls: Bool { numberedIDs?.isFull == true }

  package mutating func forgetCalls(except isOpen: (CallID) -> Bool) { numberedIDs?.forget(except: isOpen) }

  package mutating func takeExhaustion() -> Bool { numberedIDs?.takeExhaustion() == true }

  // MARK: Heartbeats

  package mutating func heartbeat(
    _ counter: UInt64, _ memory: ProtocolMemory, now: Int64
  ) throws(TemplateError) -> ByteString? {
    guard let template = conventions.client.message else { return nil }
    values.counter = counter
    return try render(template, memory, now: now)
  }

  package mutating func heartbeatReply(_ memory: ProtocolMemory, now: Int64) throws(TemplateError) -> ByteString? {
    defer { values.triggeringMessage = [] }
    guard let template = conventions.server.reply else { return nil }
    return try render(template, memory, now: now)
  }

  private mutating func render(
    _ template: Template, _ memory: ProtocolMemory, now: Int64, isSetup: Bool = false
  ) throws(TemplateError) -> ByteString {
    values.now = now
    if template.usesSequence {
      lastSequence = numberedIDs?.next() ?? lastSequence &+ 1
      values.sequence = lastSequence
    }
    if template.usesUUID { values.uuids += 1 }
    if let captured { values.captures = captured.values }
    values.cursor = memory.cursor
    if memory.cursor == nil, let initial = conventions.cursor.initial {
      values.cursor = try initial.rendered(with: values)
    }
    let message = ByteString(try template.rendered(with: values))
    for text in template.encodedTexts(with: values)
    where !encodedTextsOfSetup.contains(text) && !latestEncodedTexts.contains(text) {
      if isSetup {
        encodedTextsOfSetup.append(text)
      } else {
        if latestEncodedTexts.count >= Self.encodedTextLimit { latestEncodedTexts.removeFirst() }
        latestEncodedTexts.append(text)
      }
    }
    return message
  }
}
