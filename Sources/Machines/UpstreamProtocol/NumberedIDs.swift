import ByteStreams
import Calls
import JSONCodec

/// The ids of one connection with `correlation.ids: sequence`: 1, 2, 3 … in the order of the messages. Setup messages
/// and heartbeats use the same numbers (`${sequence}`).
///
/// The gateway replaces the id of each call by a number, so that no client can choose the id of another client's call.
/// It also replaces the id of each other message whose id is a number, since the numbers on a connection must increase.
package struct NumberedIDs: Sendable {
  private let correlation: Correlation
  private var last: UInt32
  /// The calls that have no reply on this connection.
  private var calls: [UInt32: CallID] = [:]
  /// The numbers of calls since `takeAssigned`.
  private var assigned: [(call: CallID, number: UInt32)] = []
  private var isExhausted = false

  /// The largest number. Upstreams store ids as signed 32-bit integers.
  static var largest: UInt32 { UInt32(Int32.max) }
  /// The connection is replaced when only this many numbers are left.
  private static var reserve: UInt32 { 65_536 }
  /// Maximum number of entries in `calls`. The calls that wait for a reply, or are remembered after a timeout, are
  /// always fewer than this. So above this number, some entries are of no use and can be forgotten.
  static var limit: Int { 16_384 }

  init(_ correlation: Correlation, after last: UInt32 = 0) {
    self.correlation = correlation
    self.last = last
  }

  /// The next number. After the largest number, the next number is 1 again. The connection should have been replaced
  /// before that happens.
  mutating func next() -> UInt32 {
    last = last >= Self.largest ? 1 : last + 1
    return last
  }

  /// Returns whether the numbers of this connection are nearly used up. At 10,000 calls per second, that takes two
  /// days. Returns true only once.
  mutating func takeExhaustion() -> Bool {
    guard !isExhausted, last >= Self.largest - Self.reserve else { return false }
    isExhausted = true
    return true
  }

  // MARK: Messages to the upstream

  /// Returns the range of the id in a client's message, and the number that replaces it; nil if the message stays as it
  /// is. `isCall`: whether the message is the request of a call. A message of `POST /v1/messages` may have an id of the
  /// same form, which its client chose.
  mutating func number(_ message: Span<UInt8>, isCall: Bool) -> (range: Range<Int>, number: UInt32)? {
    guard let range = correlation.request.find(in: message) else { return nil }
    let token = message.extracting(range)
    let call = isCall ? CallID(token: token) : nil
    let isNumber = ASCII.isDigit(token[0]) || token[0] == UInt8(ascii: "-")
    // A client's response to a request of the upstream repeats the upstream's id.
    guard call != nil || isNumber, !correlation.isDistinctReply(message) else { return nil }
    let number = next()
    if let call {
      calls[number] = call
      assigned.append((call, number))
    }
    return (range, number)
  }

  /// The numbers of the calls that were sent since the last call of this function.
  mutating func takeAssigned() -> [(call: CallID, number: UInt32)] {
    guard !assigned.isEmpty else { return [] }
    defer { assigned = [] }
    return assigned
  }

  /// Whether calls without a reply must be forgotten.
  var isFull: Bool { calls.count > Self.limit }

  /// Forgets the calls for which `isOpen` returns false.
  mutating func forget(except isOpen: (CallID) -> Bool) { calls = calls.filter { isOpen($0.value) } }

  // MARK: Messages of the upstream

  /// Returns the call that a message is the reply to.
  mutating func reply(_ message: Span<UInt8>) -> Correlation.Match<CallID>? {
    guard !calls.isEmpty, let match = match(message) else { return nil }
    if !match.isIgnored { calls[match.call.number] = nil }
    return Correlation.Match(call: match.call.id, range: match.range, isIgnored: match.isIgnored)
  }

  private func match(_ message: Span<UInt8>) -> Correlation.Match<(number: UInt32, id: CallID)>? {
    correlation.match(message) { token in
      guard let number = token.decimalValue().flatMap({ UInt32(exactly: $0) }), let id = calls[number] else {
        return nil
      }
      return (number, id)
    }
  }
}
