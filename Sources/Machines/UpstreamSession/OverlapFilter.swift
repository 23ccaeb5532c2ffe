import ByteStreams

/// Merges the pushes of two connections to one upstream while the newer connection takes over from the older. A push
/// that both connections deliver is passed on once, in the upstream's order.
///
/// Pushes of the older connection are passed on at once. A push that only the newer connection has delivered is delayed
/// until the older connection delivers it, or a pong shows that the older connection will not. This is the pong to a
/// ping that is sent on the older connection after the push has arrived on the newer connection. The pong arrives after
/// everything that the upstream sent on the older connection earlier. Likewise, a push of the older connection is
/// remembered until the newer connection delivers it, or a pong shows that the newer connection will not. The filter
/// assumes that an upstream sends a push to all its connections at once. If the upstream does not, a push may be passed
/// on twice.
///
/// Equal bytes are not always the same push: they may be the responses to two requests. While the newer connection
/// carries no client message, it receives no responses, and equal pushes are paired one to one. Once the newer
/// connection carries client messages, two equal pushes count as one push only if no equal push arrived earlier and the
/// pushes so far cannot all be responses (`PushHistory`). A third equal push shows that the first two were distinct. In
/// this case the push that was withheld is passed on, too. In doubt, a push is passed on twice.
package struct OverlapFilter: Sendable {
  /// Maximum number of pushes remembered per connection. Above this number, the filter forgets the oldest push, which
  /// may therefore be passed on twice.
  package static let limit = 65_536
  /// Maximum total size of delayed pushes, in bytes. Above this size, all delayed pushes are passed on, possibly ahead
  /// of older pushes.
  package static let delayedBytes = 8 << 20

  /// A push that is delayed.
  package struct Push: Sendable {
    package let payload: ByteString
    package let kind: MessageKind
    /// What the caller has prepared for a large push.
    package let preparation: (any AnyObject & Sendable)?

    package init(_ payload: ByteString, kind: MessageKind, _ preparation: (any AnyObject & Sendable)? = nil) {
      self.payload = payload
      self.kind = kind
      self.preparation = preparation
    }

    fileprivate var size: Int { payload.count + 64 }
  }

  private struct Entry: Sendable {
    /// 0 for an entry that is never paired.
    var digest: UInt64 = 0
    /// The delayed push; nil if the push has been passed on.
    var push: Push?
  }

  private struct Side: Sendable {
    let generation: Generation
    /// The pushes that this connection delivered and the other connection did not, oldest first.
    var ahead = RingDeque(filler: Entry())
    /// Number of entries in `ahead` for each digest.
    var counts: [UInt64: Int] = [:]
    /// Size of the pushes delayed in `ahead`, in bytes, with a fixed cost per entry so that empty pushes count too.
    var delayed = 0
    /// A ping on the other connection, and the end of `ahead` when the ping was sent.
    var ping: (counter: UInt64, end: Int)?
    var hasEnded = false

    mutating func append(_ digest: UInt64, _ push: Push?, _ released: inout [Push]) {
      if ahead.count >= OverlapFilter.limit { removeFirst(&released) }
      ahead.append(Entry(digest: digest, push: push))
      counts[digest, default: 0] += 1
      delayed += push?.size ?? 0
    }

    /// Removes everything through the first entry with this digest, and returns that entry; nil if there is none.
    mutating func remove(through digest: UInt64, _ released: inout [Push]) -> Entry? {
      guard counts[digest] != nil else { return nil }
      while ahead[ahead.front].digest != digest { removeFirst(&released) }
      let match = ahead[ahead.front]
      ahead[ahead.front].push = nil
      delayed -= match.push?.size ?? 0
      removeFirst(&released)
      return match
    }

    mutating func remove(before end: Int, _ released: inout [Push]) {
      while !ahead.isEmpty, ahead.front < end { removeFirst(&released) }
    }

    /// Passes on the delayed pushes, but keeps their entries.
    mutating func release(_ released: inout [Push]) {
      for index in ahead.front..<ahead.end {
        if let push = ahead[index].push { released.append(push) }
        ahead[index].push = nil
      }
      delayed = 0
    }

    private mutating func removeFirst(_ released: inout [Push]) {
      let first = ahead[ahead.front]
      ahead.removeFirst()
      if let push = first.push {
        released.append(push)
        delayed -= push.size
      }
      if let count = counts[first.digest] { counts[first.digest] = count > 1 ? count - 1 : nil }
    }
  }

  private var older: Side
  private var newer: Side
  /// Whether pushes of the newer connection are delayed at all. False if no pong can release them.
  private var isDelayAllowed: Bool
  /// Whether the newer connection carries client messages.
  private var mayReceiveResponses = false
  /// Digests for which one push was withheld as a duplicate while both connections might deliver responses.
  private var withheld: Set<UInt64> = []
  /// Whether a pong of the newer connection has shown which pushes of the older connection the newer connection will
  /// still deliver.
  private var hasReceivedPong = false

  /// `isDelayAllowed`: whether pings may be sent.
  package init(older: Generation, newer: Generation, isDelayAllowed: Bool = true) {
    self.older = Side(generation: older)
    self.newer = Side(generation: newer)
    self.isDelayAllowed = isDelayAllowed
  }

  /// A digest for `received`, seeded per process. Two different pushes have the same digest with a probability of 2⁻⁶⁴.
  package static func digest(of payload: Span<UInt8>, kind: MessageKind) -> UInt64 {
    var hasher = Hasher()
    hasher.combine(kind)
    unsafe payload.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
    return UInt64(truncatingIfNeeded: hasher.finalize())
  }

  // MARK: Pushes

  /// Called when a push arrived on the connection of this generation. Returns whether to pass it on now, after the
  /// pushes that are appended to `released`.
  ///
  /// - Parameter large: the push, if it is large and need not be copied.
  package mutating func received(
    _ digest: UInt64, _ payload: Span<UInt8>, kind: MessageKind, from generation: Generation,
    _ history: inout PushHistory, _ released: inout [Push], large: Push? = nil
  ) -> Bool {
    guard generation == older.generation || generation == newer.generation else { return true }
    // Two connections deliver the same push at most twice, so a third equal push shows that two were distinct.
    let isThird = withheld.remove(digest) != nil
    // This push may be passed on, too, so both cannot have one preparation.
    if isThird { released.append(Push(large?.payload ?? ByteString(copying: payload), kind: kind)) }
    // Once both connections may deliver responses, equal bytes alone do not show that two pushes are the same.
    let mayBePaired = !mayReceiveResponses || !(isThird || history.mayAllBeResponses || history.isRepeated(digest))
    if generation == older.generation {
      if mayBePaired, let match = newer.remove(through: digest, &released) {
        // The newer connection has skipped pushes that the older connection delivered before.
        older.remove(before: older.ahead.end, &released)
        recordWithheld(digest)
        return match.push != nil
      }
      history.record(digest)
      if mayBePaired, !newer.hasEnded { older.append(digest, nil, &released) }
      return true
    }
    if mayBePaired, older.remove(through: digest, &released) != nil {
      newer.remove(before: newer.ahead.end, &released)
      recordWithheld(digest)
      return false
    }
    history.record(digest)
    if older.hasEnded { return true }
    // If a push of the newer connection overtook the delayed pushes, the order of that connection would change.
    let mustWait = isDelayAllowed && (mayBePaired || newer.delayed > 0)
    guard mustWait else {
      if mayBePaired { newer.append(digest, nil, &released) }
      return true
    }
    newer.append(mayBePaired ? digest : 0, large ?? Push(ByteString(copying: payload), kind: kind), &released)
    if newer.delayed > Self.delayedBytes { newer.release(&released) }
    return false
  }

  private mutating func recordWithheld(_ digest: UInt64) {
    if mayReceiveResponses, withheld.count < Self.limit { withheld.insert(digest) }
  }

  // MARK: Reports of connections

  /// Called when a ping is sent on the connection of this generation.
  package mutating func pingSent(_ generation: Generation, _ counter: UInt64) {
    if generation == older.generation, newer.ping == nil { newer.ping = (counter, newer.ahead.end) }
    guard generation == newer.generation else { return }
    // Once the older connection has ended, it delivers nothing more. So a ping that is sent now covers all its pushes.
    if older.ping == nil || (older.hasEnded && older.ping?.end != older.ahead.end) {
      older.ping = (counter, older.ahead.end)
    }
  }

  /// Called when a pong arrived on the connection of this generation. A push that only the other connection delivered,
  /// before the ping was sent, has no duplicate.
  package mutating func pongReceived(_ generation: Generation, _ counter: UInt64, _ released: inout [Push]) {
    if generation == older.generation, let ping = newer.ping, counter >= ping.counter {
      newer.ping = nil
      newer.remove(before: ping.end, &released)
    }
    if generation == newer.generation, let ping = older.ping, counter >= ping.counter {
      older.ping = nil
      hasReceivedPong = true
      older.remove(before: ping.end, &released)
    }
  }

  /// Called when the newer connection starts to send. If no pong has shown which pushes of the older connection the
  /// newer connection will still deliver, all pushes of the older connection are forgotten. So no response is mistaken
  /// for a repeated push.
  package mutating func newerStartedSending() {
    guard !hasReceivedPong else { return }
    var released: [Push] = []
    older.remove(before: older.ahead.end, &released)
  }

  /// Called when a client message is sent on the connection of this generation.
  package mutating func messageSent(_ generation: Generation) {
    if generation == newer.generation { mayReceiveResponses = true }
  }

  /// Stops delaying pushes: the older connection's pong is overdue.
  package mutating func stopDelaying(_ released: inout [Push]) {
    isDelayAllowed = false
    newer.release(&released)
  }

  /// Called when the connection of this generation delivers nothing more.
  package mutating func connectionEnded(_ generation: Generation, _ released: inout [Push]) {
    if generation == older.generation, !older.hasEnded {
      older.hasEnded = true
      newer.remove(before: newer.ahead.end, &released)
    }
    if generation == newer.generation, !newer.hasEnded {
      newer.hasEnded = true
      older.remove(before: older.ahead.end, &released)
      // No pong will show which pushes of the newer connection the older connection skips. So all pushes of the newer
      // connection are forgotten: they must not be paired with later equal pushes.
      if !isDelayAllowed { newer.remove(before: newer.ahead.end, &released) }
    }
  }

  // MARK: State

  package var isDelaying: Bool { newer.delayed > 0 }

  /// The connection whose pong releases the delayed pushes.
  package var releasing: Generation { older.generation }

  /// Whether no push can arrive twice from now on.
  package var isOver: Bool {
    if older.hasEnded, newer.hasEnded { return true }
    if older.hasEnded { return older.ahead.isEmpty }
    if newer.hasEnded { return newer.ahead.isEmpty }
    return false
  }
}
