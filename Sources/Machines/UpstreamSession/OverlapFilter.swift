import ByteStreams

/// Merges the pushes of two connections to one upstream while the newer takes over from the older: what both bring is passed
/// on once, in the upstream's order.
///
/// Pushes of the older connection pass at once. A push of the newer that the older has not brought is held until the older
/// brings it too, or shows that it will not: the pong to a later ping comes after everything that the upstream sent to both
/// before. Likewise what the older brought is remembered until the newer brings it, or a pong shows that it will not.
/// This assumes that an upstream sends a push to its connections in one go. Where it does not, a push may pass twice.
///
/// Equal bytes are not always one push: they may be the responses to two requests. As long as the newer connection carries no
/// client message, it brings no responses, and equal pushes are paired one by one. From then on two equal pushes count as one
/// only if nothing equal came before them, and not while the few pushes so far may all be responses (`PushHistory`).
/// A third equal push shows that the two were not one, and what was withheld passes with it. In doubt a push passes twice.
package struct OverlapFilter: Sendable {
  /// Pushes remembered of one connection. Beyond it the oldest is forgotten, and may pass twice.
  package static let limit = 65_536
  /// Bytes of pushes held. Beyond it all are passed on, perhaps ahead of older ones.
  package static let heldBytes = 8 << 20

  /// A push that is held.
  package struct Push: Sendable {
    package let payload: SharedBytes
    package let kind: MessageKind

    package init(_ payload: SharedBytes, kind: MessageKind) {
      self.payload = payload
      self.kind = kind
    }

    fileprivate var size: Int { payload.count + 64 }
  }

  private struct Entry: Sendable {
    /// 0 for one that is never paired.
    var digest: UInt64 = 0
    /// nil once it has been passed on.
    var push: Push?
  }

  private struct Side: Sendable {
    let generation: Generation
    /// What it brought and the other has not, oldest first.
    var ahead = RingDeque(filler: Entry())
    /// How often each digest is in `ahead`.
    var counts: [UInt64: Int] = [:]
    /// Bytes of the pushes in `ahead`, and of their entries: an empty push counts too.
    var held = 0
    /// A ping on the other connection, and where `ahead` ended when it was sent.
    var ping: (counter: UInt64, end: Int)?
    var hasEnded = false

    mutating func append(_ digest: UInt64, _ push: Push?, _ released: inout [Push]) {
      if ahead.count >= OverlapFilter.limit { removeFirst(&released) }
      ahead.append(Entry(digest: digest, push: push))
      counts[digest, default: 0] += 1
      held += push?.size ?? 0
    }

    /// Removes everything before the first push with this digest, and that one, which is returned; nil where there is none.
    mutating func remove(through digest: UInt64, _ released: inout [Push]) -> Entry? {
      guard counts[digest] != nil else { return nil }
      while ahead[ahead.front].digest != digest { removeFirst(&released) }
      let match = ahead[ahead.front]
      ahead[ahead.front].push = nil
      held -= match.push?.size ?? 0
      removeFirst(&released)
      return match
    }

    mutating func remove(before end: Int, _ released: inout [Push]) {
      while !ahead.isEmpty, ahead.front < end { removeFirst(&released) }
    }

    /// Passes on what is held, and goes on remembering it.
    mutating func release(_ released: inout [Push]) {
      for place in ahead.front..<ahead.end {
        if let push = ahead[place].push { released.append(push) }
        ahead[place].push = nil
      }
      held = 0
    }

    private mutating func removeFirst(_ released: inout [Push]) {
      let first = ahead[ahead.front]
      ahead.removeFirst()
      if let push = first.push {
        released.append(push)
        held -= push.size
      }
      if let count = counts[first.digest] { counts[first.digest] = count > 1 ? count - 1 : nil }
    }
  }

  private var older: Side
  private var newer: Side
  /// Whether pushes of the newer connection are held at all: not where no pong can release them.
  private var holds: Bool
  /// Whether the newer connection carries client messages.
  private var isAnswering = false
  /// Digests of which one push was withheld as a duplicate while both connections might bring responses.
  private var withheld: Set<UInt64> = []
  /// Whether a pong of the newer connection has come since `older` is recorded.
  private var isSwept = false

  /// `holds`: whether pings may be sent.
  package init(older: Generation, newer: Generation, holds: Bool = true) {
    self.older = Side(generation: older)
    self.newer = Side(generation: newer)
    self.holds = holds
  }

  /// A digest for `received`, different in every process. Two pushes share one with a chance of 2⁻⁶⁴.
  package static func digest(of payload: Span<UInt8>, kind: MessageKind) -> UInt64 {
    var hasher = Hasher()
    hasher.combine(kind)
    unsafe payload.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
    return UInt64(truncatingIfNeeded: hasher.finalize())
  }

  // MARK: Pushes

  /// A push has come on the connection of this generation. Returns whether it is to be passed on now, behind those appended to
  /// `released`.
  package mutating func received(
    _ digest: UInt64, _ payload: Span<UInt8>, kind: MessageKind, from generation: Generation,
    _ history: inout PushHistory, _ released: inout [Push]
  ) -> Bool {
    guard generation == older.generation || generation == newer.generation else { return true }
    // Of two connections one push comes twice at most.
    let isThird = withheld.remove(digest) != nil
    if isThird { released.append(Push(SharedBytes(copying: payload), kind: kind)) }
    // Bytes that repeat prove nothing once both connections may bring responses.
    let mayBePaired = !isAnswering || !(isThird || history.mayAllBeResponses || history.repeats(digest))
    if generation == older.generation {
      if mayBePaired, let match = newer.remove(through: digest, &released) {
        // What the older brought before, the newer has passed by.
        older.remove(before: older.ahead.end, &released)
        noteWithheld(digest)
        return match.push != nil
      }
      history.note(digest)
      if mayBePaired, !newer.hasEnded { older.append(digest, nil, &released) }
      return true
    }
    if mayBePaired, older.remove(through: digest, &released) != nil {
      newer.remove(before: newer.ahead.end, &released)
      noteWithheld(digest)
      return false
    }
    history.note(digest)
    if older.hasEnded { return true }
    // Not ahead of those that are held, or the newer connection's own order would change.
    let waits = holds && (mayBePaired || newer.held > 0)
    guard waits else {
      if mayBePaired { newer.append(digest, nil, &released) }
      return true
    }
    newer.append(mayBePaired ? digest : 0, Push(SharedBytes(copying: payload), kind: kind), &released)
    if newer.held > Self.heldBytes { newer.release(&released) }
    return false
  }

  private mutating func noteWithheld(_ digest: UInt64) {
    if isAnswering, withheld.count < Self.limit { withheld.insert(digest) }
  }

  // MARK: What connections report

  /// A ping goes out on the connection of this generation.
  package mutating func pinged(_ generation: Generation, _ counter: UInt64) {
    if generation == older.generation, newer.ping == nil { newer.ping = (counter, newer.ahead.end) }
    guard generation == newer.generation else { return }
    // What an older connection that has ended brought does not become more: then the last ping covers all of it.
    if older.ping == nil || (older.hasEnded && older.ping?.end != older.ahead.end) {
      older.ping = (counter, older.ahead.end)
    }
  }

  /// A pong has come on the connection of this generation: what only the other brought before its ping is no duplicate.
  package mutating func ponged(_ generation: Generation, _ counter: UInt64, _ released: inout [Push]) {
    if generation == older.generation, let ping = newer.ping, counter >= ping.counter {
      newer.ping = nil
      newer.remove(before: ping.end, &released)
    }
    if generation == newer.generation, let ping = older.ping, counter >= ping.counter {
      older.ping = nil
      isSwept = true
      older.remove(before: ping.end, &released)
    }
  }

  /// The queue flows into the newer connection from now on. If no pong has shown which pushes of the older connection the newer
  /// one will still bring, all of them are forgotten, so that no response is mistaken for one of them.
  package mutating func switched() {
    guard !isSwept else { return }
    var released: [Push] = []
    older.remove(before: older.ahead.end, &released)
  }

  /// A client message goes out on the connection of this generation.
  package mutating func wrote(_ generation: Generation) {
    if generation == newer.generation { isAnswering = true }
  }

  /// Nothing is held any longer: the older connection does not show in time how far it is.
  package mutating func stopHolding(_ released: inout [Push]) {
    holds = false
    newer.release(&released)
  }

  /// The connection of this generation brings nothing more.
  package mutating func ended(_ generation: Generation, _ released: inout [Push]) {
    if generation == older.generation, !older.hasEnded {
      older.hasEnded = true
      newer.remove(before: newer.ahead.end, &released)
    }
    if generation == newer.generation, !newer.hasEnded {
      newer.hasEnded = true
      older.remove(before: older.ahead.end, &released)
      // No pong will show which of its pushes the older does not bring: those must not count as one with later equal ones.
      if !holds { newer.remove(before: newer.ahead.end, &released) }
    }
  }

  // MARK: State

  package var isHolding: Bool { newer.held > 0 }

  /// The connection whose pong releases what is held.
  package var releasing: Generation { older.generation }

  /// Nothing can come twice any more.
  package var isOver: Bool {
    if older.hasEnded, newer.hasEnded { return true }
    if older.hasEnded { return older.ahead.isEmpty }
    if newer.hasEnded { return newer.ahead.isEmpty }
    return false
  }
}
