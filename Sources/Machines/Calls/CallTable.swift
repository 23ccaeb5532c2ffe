import ByteStreams
import Totals
import UpstreamSession

/// The calls of one session: requests that wait for their replies.
///
/// The first outcome that is reported for a call counts. The client collects it with `finish`, or gives up with
/// `abandon`. After a timeout, `LateCalls` remembers the call for a while, so that a late reply is found. The table is
/// a value without socket, clock or randomness: the owner makes the ids, and reports messages and the ends of
/// connections.
package struct CallTable: Sendable {
  /// Limits of one session.
  package struct Limits: Sendable {
    /// Maximum concurrent calls of one client (`ReservedTotal`). Each is a held request. The limit is a quarter of the
    /// default of `http.connections`.
    package var calls = 4_096
    /// Maximum size of the replies that clients have not collected yet. A client collects its reply in the next turn of
    /// its loop, so the replies reach this limit only if a loop is stuck. A single larger reply is accepted.
    package var replyBytes = 64 << 20
    package var late = LateCalls.Limits()

    package init() {}
  }

  /// How a call ended.
  package enum Outcome: Sendable {
    case replied(CallReply)
    /// The connection that carried the request has ended, and the request is not sent again.
    case upstreamClosed
    /// The request was not sent, and will not be sent.
    case notSent
    /// The client's timeout has passed.
    case timedOut
  }

  /// The meaning of a message with the id of a call.
  package enum Match: Equatable, Sendable {
    /// The reply to a call. The client that waits in this lane (see `open`) must be woken.
    case reply(lane: Int)
    /// The reply to a call that timed out.
    case lateReply
    /// Not accepted as a reply: the call has another outcome already, or there is no room for the message.
    case none
  }

  private struct Call: Sendable {
    let token: ByteString
    let sequence: UInt64
    let lane: Int
    /// The client for which the call is counted.
    let client: UInt64
    /// The last connection that has taken the request; nil if there was none, or if that connection has ended and the
    /// request is queued.
    var carrier: Generation?
    var outcome: Outcome?
    /// The number with which the request was sent last, if the ids of calls are replaced by numbers (`NumberedIDs`).
    var number: UInt32?
  }

  /// If at most this many calls were open at a time, an empty table keeps its memory.
  private static var lanesKept: Int { 64 }

  private let limits: Limits
  private var total: ReservedTotal
  private var calls: [CallID: Call] = [:]
  /// The ids of the calls, by the number of the message with the request.
  private var ids: [UInt64: CallID] = [:]
  /// Lanes below `laneCount` that no call has. The lane freed last is used first, so that few calls use few lanes.
  private var freeLanes: [Int] = []
  private var laneCount = 0
  private var late: LateCalls
  private var replyBytes = 0
  /// Calls without an outcome.
  package private(set) var pending = 0

  package init(_ limits: Limits = Limits()) {
    self.limits = limits
    total = ReservedTotal(limit: limits.calls)
    late = LateCalls(limits.late)
  }

  /// Whether there is no call, not even a remembered call. If so, messages of the upstream need not be examined.
  package var isEmpty: Bool { calls.isEmpty && late.isEmpty }
  /// The number of calls whose clients have not collected an outcome.
  package var count: Int { calls.count }

  /// Whether the client may make a call. `client` is 0 if clients cannot be distinguished.
  package func hasRoom(for client: UInt64) -> Bool { total.admits(by: client) }

  /// The number of the message with the request, if a message with this id may be a reply.
  package func sequence(of id: CallID) -> UInt64? { calls[id]?.sequence ?? late.sequence(of: id) }

  package func contains(_ id: CallID) -> Bool { sequence(of: id) != nil }

  /// The numbers of the messages with the requests.
  package var sequences: [UInt64] { Array(ids.keys) }

  // MARK: Clients

  /// Adds a call. There must be room for it, and its id must be new. Returns its lane, a small number that no other
  /// call has until this call is removed.
  ///
  /// - Parameters:
  ///   - token: the id that the client has chosen for the call, as JSON.
  ///   - sequence: the number of the message with the request.
  ///   - client: the client for which the call is counted.
  package mutating func open(_ id: CallID, token: ByteString, sequence: UInt64, by client: UInt64 = 0) -> Int {
    precondition(hasRoom(for: client) && !contains(id), "a call needs room and a new id")
    total.add(by: client)
    let lane = freeLanes.popLast() ?? laneCount
    if lane == laneCount { laneCount += 1 }
    calls[id] = Call(token: token, sequence: sequence, lane: lane, client: client)
    ids[sequence] = id
    pending += 1
    return lane
  }

  /// Whether the call has an outcome.
  package func isOver(_ id: CallID) -> Bool { calls[id]?.outcome != nil }

  /// Called when the client collects the outcome. If the call has no outcome yet, it has timed out, and its late reply
  /// will be kept for the principal `caller`.
  ///
  /// - Parameter hasMemory: whether late calls may use this many bytes more.
  package mutating func finish(
    _ id: CallID, for caller: String, now: MonotonicTime, hasMemory: (Int) -> Bool = { _ in true }
  ) -> Outcome {
    guard let call = remove(id) else { preconditionFailure("a call was finished twice") }
    if let outcome = call.outcome { return outcome }
    late.add(
      id, token: call.token, sequence: call.sequence, from: caller, by: call.client, now: now, hasMemory: hasMemory)
    return .timedOut
  }

  /// Called when the client has disconnected. A reply that arrives later is an ordinary message.
  package mutating func abandon(_ id: CallID) { _ = remove(id) }

  private mutating func remove(_ id: CallID) -> Call? {
    guard let call = calls.removeValue(forKey: id) else { return nil }
    total.remove(by: call.client)
    ids[call.sequence] = nil
    freeLanes.append(call.lane)
    switch call.outcome {
    case nil: pending -= 1
    case .replied(let reply): replyBytes -= reply.count
    case .upstreamClosed, .notSent, .timedOut: break
    }
    // A table that had many calls frees its memory.
    if calls.isEmpty, laneCount > Self.lanesKept { (calls, ids, freeLanes, laneCount) = ([:], [:], [], 0) }
    return call
  }

  // MARK: The upstream

  /// Records that a connection has taken the message with this number.
  package mutating func taken(_ sequence: UInt64, by connection: Generation) {
    guard let id = ids[sequence] else { return }
    calls[id]?.carrier = connection
  }

  /// Records that the request of a call was sent under this number.
  package mutating func sent(_ id: CallID, as number: UInt32) { calls[id]?.number = number }

  /// The number under which the request of a call was sent last.
  package func number(of id: CallID) -> UInt32? { calls[id]?.number }

  /// Records a message with the id of a call.
  ///
  /// - Parameters:
  ///   - range: the range of the id in the message.
  ///   - canBeLate: whether the message can be a late reply, which is shown inside a JSON document.
  ///   - hasMemory: whether late calls may use this many bytes more.
  package mutating func receive(
    _ id: CallID, _ message: ByteString, _ range: Range<Int>, canBeLate: Bool, now: MonotonicTime,
    hasMemory: (Int) -> Bool = { _ in true }
  ) -> Match {
    guard let call = calls[id] else {
      return canBeLate && late.receive(id, message, range, now: now, hasMemory: hasMemory) ? .lateReply : .none
    }
    guard call.outcome == nil, replyBytes == 0 || replyBytes + message.count <= limits.replyBytes else { return .none }
    replyBytes += message.count
    settle(id, as: .replied(CallReply(message, range, token: call.token)))
    return .reply(lane: call.lane)
  }

  /// Called when a connection has ended and its messages are settled. Returns the lanes of the calls that end with the
  /// connection.
  ///
  /// - Parameter isQueued: whether the message with this number will be sent on another connection.
  package mutating func connectionEnded(_ connection: Generation, isQueued: (UInt64) -> Bool) -> [Int] {
    guard pending > 0 else { return [] }
    var lanes: [Int] = []
    // The loop changes `calls`. Iterating over `calls` itself would therefore copy it.
    for id in ids.values {
      guard let call = calls[id], call.outcome == nil, call.carrier == connection else { continue }
      if isQueued(call.sequence) {
        calls[id]?.carrier = nil
      } else {
        settle(id, as: .upstreamClosed)
        lanes.append(call.lane)
      }
    }
    return lanes
  }

  /// Ends calls that can no longer get a reply. Returns the lanes of the calls that had no outcome.
  package mutating func end(_ ids: [CallID]) -> [Int] {
    ids.compactMap { id in
      guard let call = calls[id], call.outcome == nil else { return nil }
      settle(id, as: .upstreamClosed)
      return call.lane
    }
  }

  /// Called when messages have ended, or may have ended. Returns the lanes of the calls that end with these messages.
  /// The cost does not depend on the number of calls.
  ///
  /// - Parameter outcome: returns the outcome of the call whose request is the message with this number; nil if the
  ///   message has not ended. `hasCarrier`: whether a connection that has not ended has taken the message.
  package mutating func messagesEnded(
    _ sequences: [UInt64], _ outcome: (UInt64, _ hasCarrier: Bool) -> Outcome?
  ) -> [Int] {
    sequences.compactMap { sequence in
      guard let id = ids[sequence], let call = calls[id], call.outcome == nil,
        let outcome = outcome(sequence, call.carrier != nil)
      else { return nil }
      settle(id, as: outcome)
      return call.lane
    }
  }

  private mutating func settle(_ id: CallID, as outcome: Outcome) {
    calls[id]?.outcome = outcome
    pending -= 1
  }

  // MARK: Late replies

  /// Memory of the calls that have timed out, and of their replies, in bytes.
  package var lateMemory: Int { late.memory }

  /// The late reply to the request in the message with this number; nil unless the principal `caller` sent that
  /// request.
  package func lateReply(to sequence: UInt64, for caller: String, now: MonotonicTime) -> CallReply? {
    late.reply(to: sequence, for: caller, now: now)
  }

  /// Forgets calls that timed out long ago.
  package mutating func expire(now: MonotonicTime) { late.expire(now: now) }
}
