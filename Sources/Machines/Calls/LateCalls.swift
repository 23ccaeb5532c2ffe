import ByteStreams

/// The calls of a session that timed out in the last minute, and the replies that have arrived for them since.
///
/// Above a limit the oldest are forgotten. A reply to a forgotten call is a message like any other.
package struct LateCalls: Sendable {
  package struct Limits: Sendable {
    /// How long a call is remembered after its timeout. A client that has got a timeout needs time to ask again.
    package var time = TimeSpan.seconds(60)
    /// As many as there can be calls at a time.
    package var calls = 4_096
    /// Size of the replies. The default of `upstream.message_bytes`: a reply of any allowed size can be kept.
    package var replyBytes = 16 << 20

    package init() {}
  }

  private struct Call: Sendable {
    let id: CallID
    let token: SharedBytes
    /// The principal of its client.
    let caller: String
    let end: MonotonicTime
    var reply: CallReply?
  }

  /// Memory of a call besides its id and its reply.
  static var callBytes: Int { 256 }

  private let limits: Limits
  private var calls: [UInt64: Call] = [:]
  private var sequences: [CallID: UInt64] = [:]
  /// In the order of their timeouts.
  private var order = RingDeque<UInt64>(filler: 0)
  private var replyBytes = 0
  /// Memory of all calls and their replies, in bytes.
  private(set) var memory = 0
  /// Callers on different threads pass times that are not quite in order.
  private var latest = MonotonicTime.zero

  init(_ limits: Limits) { self.limits = limits }

  var isEmpty: Bool { calls.isEmpty }

  func sequence(of id: CallID) -> UInt64? { sequences[id] }

  /// - Parameter hasMemory: whether late calls may have so many bytes more. Without memory the call is not remembered.
  mutating func add(
    _ id: CallID, token: SharedBytes, sequence: UInt64, from caller: String, now: MonotonicTime,
    hasMemory: (Int) -> Bool
  ) {
    expire(now: now)
    guard hasMemory(Self.callBytes + token.count) else { return }
    if calls.count >= limits.calls { forgetOldest() }
    calls[sequence] = Call(id: id, token: token, caller: caller, end: latest + limits.time)
    sequences[id] = sequence
    order.append(sequence)
    memory += Self.callBytes + token.count
  }

  /// Returns whether the message is the first reply to a call, and is kept.
  mutating func receive(
    _ id: CallID, _ message: SharedBytes, _ range: Range<Int>, now: MonotonicTime, hasMemory: (Int) -> Bool
  ) -> Bool {
    expire(now: now)
    guard let sequence = sequences[id], let call = calls[sequence], call.reply == nil,
      message.count <= limits.replyBytes, hasMemory(message.count)
    else { return false }
    while replyBytes + message.count > limits.replyBytes { forgetOldest() }
    // It may be the oldest itself.
    guard calls[sequence] != nil else { return false }
    replyBytes += message.count
    memory += message.count
    calls[sequence]?.reply = CallReply(message, range, token: call.token)
    return true
  }

  /// Nil for any other client than the one that has called.
  func reply(to sequence: UInt64, for caller: String, now: MonotonicTime) -> CallReply? {
    calls[sequence].flatMap { $0.end > now && $0.caller == caller ? $0.reply : nil }
  }

  mutating func expire(now: MonotonicTime) {
    latest = max(latest, now)
    while !order.isEmpty, let oldest = calls[order[order.front]], oldest.end <= latest { forgetOldest() }
  }

  private mutating func forgetOldest() {
    let sequence = order[order.front]
    order.removeFirst()
    if let call = calls.removeValue(forKey: sequence) {
      sequences[call.id] = nil
      replyBytes -= call.reply?.count ?? 0
      memory -= Self.callBytes + call.token.count + (call.reply?.count ?? 0)
    }
    // The memory of many calls is not kept.
    if calls.isEmpty { (calls, sequences, order) = ([:], [:], RingDeque(filler: 0)) }
  }
}
