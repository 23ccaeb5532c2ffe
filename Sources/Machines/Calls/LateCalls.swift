import ByteStreams
import Totals

/// A session's calls that timed out in the last minute, and the replies that have arrived for them since.
///
/// Above a limit, the oldest calls of the clients that have more than their share (`Reserve.share`) are forgotten
/// first, then the oldest calls of all. A reply to a forgotten call is an ordinary message.
package struct LateCalls: Sendable {
  package struct Limits: Sendable {
    /// How long a call is remembered after its timeout. After a timeout, a client needs time to request the late reply.
    package var time = TimeSpan.seconds(60)
    /// Maximum number of remembered calls. It equals the maximum number of concurrent calls of one client.
    package var calls = 4_096
    /// Maximum size of the replies. It is the default of `upstream.message_bytes`, so that with this default a reply of
    /// any allowed size can be kept.
    package var replyBytes = 16 << 20

    package init() {}
  }

  private struct Call: Sendable {
    let id: CallID
    let token: ByteString
    /// The principal of its client.
    let caller: String
    /// The client for which the call is counted; 0 if clients cannot be distinguished.
    let client: UInt64
    let end: MonotonicTime
    var reply: CallReply?
  }

  /// Memory of a call, in bytes, without its id and its reply.
  static var callBytes: Int { 256 }

  private let limits: Limits
  private var calls: [UInt64: Call] = [:]
  private var sequences: [CallID: UInt64] = [:]
  /// The calls in the order of their timeouts, including some forgotten calls. The first is never a forgotten call.
  private var order = RingDeque<UInt64>(filler: 0)
  private var replyBytes = 0
  /// The calls of each client, and the bytes of their replies.
  private var clientTotals = ClientTotals()
  /// Memory of all calls and their replies, in bytes.
  private(set) var memory = 0
  /// The latest time of any input. Threads pass times that are slightly out of order.
  private var latest = MonotonicTime.zero

  init(_ limits: Limits) { self.limits = limits }

  var isEmpty: Bool { calls.isEmpty }

  func sequence(of id: CallID) -> UInt64? { sequences[id] }

  /// - Parameters:
  ///   - client: the client for which the call is counted; 0 if clients cannot be distinguished.
  ///   - hasMemory: whether late calls may use this many bytes more. If not, the call is not remembered.
  mutating func add(
    _ id: CallID, token: ByteString, sequence: UInt64, from caller: String, by client: UInt64, now: MonotonicTime,
    hasMemory: (Int) -> Bool
  ) {
    expire(now: now)
    guard hasMemory(Self.callBytes + token.count) else { return }
    let (limit, share) = (limits.calls, Reserve(limit: limits.calls).share)
    forget(while: { $0.calls.count >= limit }, of: { $0.clientTotals[$1.client].count > share })
    calls[sequence] = Call(id: id, token: token, caller: caller, client: client, end: latest + limits.time)
    sequences[id] = sequence
    order.append(sequence)
    clientTotals.add(0, by: client)
    memory += Self.callBytes + token.count
  }

  /// Records a message as a late reply. Returns false if no call waits for it, the call has a reply already, or there
  /// is no room.
  mutating func receive(
    _ id: CallID, _ message: ByteString, _ range: Range<Int>, now: MonotonicTime, hasMemory: (Int) -> Bool
  ) -> Bool {
    expire(now: now)
    guard let sequence = sequences[id], let call = calls[sequence], call.reply == nil,
      message.count <= limits.replyBytes, hasMemory(message.count)
    else { return false }
    let (limit, share) = (limits.replyBytes, Reserve(limit: limits.replyBytes).share)
    forget(
      while: { $0.replyBytes + message.count > limit },
      of: { $1.reply != nil && $0.clientTotals[$1.client].bytes > share })
    // To make room, the call itself may have been forgotten.
    guard calls[sequence] != nil else { return false }
    replyBytes += message.count
    memory += message.count
    clientTotals.grow(message.count, by: call.client)
    calls[sequence]?.reply = CallReply(message, range, token: call.token)
    return true
  }

  /// The late reply; nil unless `caller` is the principal that made the call.
  func reply(to sequence: UInt64, for caller: String, now: MonotonicTime) -> CallReply? {
    calls[sequence].flatMap { $0.end > now && $0.caller == caller ? $0.reply : nil }
  }

  mutating func expire(now: MonotonicTime) {
    latest = max(latest, now)
    while !order.isEmpty, let oldest = calls[order[order.front]], oldest.end <= latest { forgetOldest() }
  }

  /// Forgets calls while `isFull`: first the oldest calls for which `hasTooMuch` returns true or whose client is
  /// unknown, then the oldest calls of all.
  private mutating func forget(while isFull: (Self) -> Bool, of hasTooMuch: (Self, Call) -> Bool) {
    guard isFull(self) else { return }
    for position in order.front..<order.end where isFull(self) {
      let sequence = order[position]
      guard let call = calls[sequence], call.client == 0 || hasTooMuch(self, call) else { continue }
      forget(sequence)
    }
    trimOrder()
    while isFull(self) { forgetOldest() }
  }

  private mutating func forgetOldest() {
    forget(order[order.front])
    trimOrder()
  }

  private mutating func forget(_ sequence: UInt64) {
    guard let call = calls.removeValue(forKey: sequence) else { return }
    let size = call.reply?.count ?? 0
    sequences[call.id] = nil
    replyBytes -= size
    memory -= Self.callBytes + call.token.count + size
    clientTotals.remove(size, by: call.client)
  }

  private mutating func trimOrder() {
    // A table that had many calls frees its memory.
    if calls.isEmpty { (calls, sequences, order) = ([:], [:], RingDeque(filler: 0)) }
    while !order.isEmpty, calls[order[order.front]] == nil { order.removeFirst() }
    // Behind a call that is kept, forgotten calls of other clients stay in `order`. `order` is rebuilt when there are
    // too many of them.
    guard order.count > 2 * limits.calls else { return }
    var rest = RingDeque<UInt64>(filler: 0)
    for position in order.front..<order.end where calls[order[position]] != nil { rest.append(order[position]) }
    order = rest
  }
}
