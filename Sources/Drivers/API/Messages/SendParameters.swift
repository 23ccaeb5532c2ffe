import ByteStreams
import HTTPCodec
import Outbox

/// The parameters of a `POST /v1/messages`, from its header fields and its query. Each parameter may be in either of
/// them, for clients that cannot set header fields. A parameter that is in both must have the same value in both.
struct SendParameters {
  /// The state for which the response waits.
  enum Milestone {
    /// The message is accepted. The response does not wait any longer.
    case queued
    case written
    case confirmed

    /// Whether a message has reached this state, or a final state.
    func isReached(by sequence: UInt64, in deliveries: borrowing DeliveryLedger) -> Bool {
      switch self {
      case .queued: true
      case .written: deliveries.isWritten(sequence)
      case .confirmed: deliveries.isSettled(sequence)
      }
    }
  }

  /// The TTL as the client has stated it.
  private(set) var timeToLive: TimeSpan?
  /// How long the request has waited at another gateway. This time is part of its TTL and of its wait.
  let waited: TimeSpan
  /// Whether the granted TTL is shorter than the requested TTL, so that the response states it (RFC 8030 §5.2).
  private(set) var isTimeToLiveReduced = false
  private(set) var topic: String?
  private(set) var until = Milestone.queued
  /// How long to wait for `until`.
  private(set) var wait: TimeSpan
  /// Whether `wait` is from `Prefer`. If so, the response confirms it.
  private(set) var isPreferenceApplied = false
  /// How long the request may wait until its messages are stored.
  private(set) var storeWait = API.storeWait
  /// The kind of the message that the query states, whatever the `Content-Type`; nil if the query states none.
  private(set) var kind: MessageKind?
  /// The parameters of an event; nil if the query has no parameter of an event.
  private(set) var event: EventParameters?

  /// Longest topic, in bytes. RFC 8030 §5.4 allows 32; applications need longer names.
  private static let longestTopic = 128

  /// - Parameters:
  ///   - standard: the wait of a request that does not state one.
  ///   - maximum: the longest wait.
  init(
    _ request: borrowing HTTPRequestHead, wait standard: TimeSpan, maximum: TimeSpan
  ) throws(Problem) {
    wait = .zero
    waited = WaitParameter.waited(request)
    if let value = request.fields.first(.ttl) {
      let granted = try Self.timeToLive(inField: value)
      timeToLive = granted
      isTimeToLiveReduced = granted == .longestParsable && TimeSpan(value) != granted
    }
    if let value = request.fields.first(.topic) { topic = try Self.topic("Topic", value) }
    storeWait = WaitParameter.storeWait(for: request)
    guard !request.query.isEmpty else { return }
    var asked: TimeSpan?
    var milestone: Milestone?
    try QueryParameter.forEach(of: request, accepting: SendMessages.parameters) { parameter, value throws(Problem) in
      switch parameter {
      case .ttl: timeToLive = try Self.timeToLive(inQuery: value, field: timeToLive)
      case .topic: try merge(topic: value)
      case .until: milestone = try Self.milestone(value)
      case .wait: asked = try WaitParameter.read(value)
      case .type: kind = try Self.kind(value)
      case .event, .namespace: event = EventParameters(adding: parameter, value, to: event)
      case .cursor, .since, .last, .limit, .maxBytes, .stream, .events, .ack, .after, .code, .data, .name,
        .ready, .exclude:
        preconditionFailure("not accepted")
      }
    }
    // An unsuitable parameter is refused. Unlike `Prefer`, which a server may ignore (RFC 7240 §2), a parameter is
    // never ignored.
    guard asked == nil || milestone != nil else {
      throw Problem(
        .invalidParameter,
        "wait needs until: add until=written or until=confirmed, or leave out wait for a response at once")
    }
    until = milestone ?? .queued
    // `queued` is reached at once, whatever the wait.
    guard until != .queued else { return }
    let preferred = asked == nil ? WaitParameter.preference(of: request) : nil
    isPreferenceApplied = preferred != nil
    wait = WaitParameter.granted(asked ?? preferred ?? standard, for: request, maximum: maximum)
    wait = WaitParameter.left(of: wait, for: request)
  }

  // MARK: Values

  static func timeToLive(inField value: Span<UInt8>) throws(Problem) -> TimeSpan {
    guard let seconds = value.deltaSeconds() else {
      throw Problem(.invalidParameter, "TTL '\(value.excerpt())' is not valid: use whole seconds, such as TTL: 30")
    }
    return .seconds(Int64(seconds))
  }

  /// Returns the value of the query parameter, which must equal the value of the header field.
  static func timeToLive(
    inQuery value: Span<UInt8>, field: TimeSpan?
  ) throws(Problem) -> TimeSpan {
    guard let span = TimeSpan(value) else {
      throw Problem(
        .invalidParameter,
        "ttl '\(value.excerpt())' is not valid: use a duration such as 30s, 500ms, 1h30m or whole seconds, of at most 2147483648 s, or 0 to send now or not at all"
      )
    }
    try refuseDifference(field.map { $0 == span }, "TTL", "ttl")
    return span
  }

  private static func topic(_ name: StaticString, _ value: Span<UInt8>) throws(Problem) -> String {
    // Bytes that are not printable ASCII have no agreed meaning in a field (RFC 9110 §5.5).
    guard !value.isEmpty, value.count <= longestTopic, value.isPrintableASCII() else {
      throw Problem(
        .invalidParameter, "\(name) is not valid: use 1 to \(longestTopic) printable ASCII characters")
    }
    return value.text()
  }

  private mutating func merge(topic value: Span<UInt8>) throws(Problem) {
    let given = try Self.topic("topic", value)
    try Self.refuseDifference(topic.map { $0 == given }, "Topic", "topic")
    topic = given
  }

  static func kind(_ value: Span<UInt8>) throws(Problem) -> MessageKind {
    if value.equals("text") { return .text }
    if value.equals("binary") { return .binary }
    throw Problem(.invalidParameter, "type '\(value.excerpt())' is not valid: use text or binary")
  }

  private static func milestone(_ value: Span<UInt8>) throws(Problem) -> Milestone {
    if value.equals("queued") { return .queued }
    if value.equals("written") { return .written }
    if value.equals("confirmed") { return .confirmed }
    throw Problem(
      .invalidParameter, "until '\(value.excerpt())' is not valid: use queued, written or confirmed")
  }

  private static func refuseDifference(
    _ isEqual: Bool?, _ field: StaticString, _ parameter: StaticString
  ) throws(Problem) {
    guard isEqual == false else { return }
    throw Problem(
      .invalidParameter,
      "the header field \(field) and the query parameter \(parameter) differ: give one of them, or the same value")
  }
}

extension Span where Element == UInt8 {
  fileprivate func isPrintableASCII() -> Bool {
    for index in indices where self[index] < 0x20 || self[index] > 0x7E { return false }
    return true
  }
}
