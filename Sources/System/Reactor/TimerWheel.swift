/// Timers for hundreds of thousands of deadlines. To set or cancel a timer, two list links are changed, however many
/// timers there are.
///
/// A hierarchical timing wheel (Varghese and Lauck): 256 slots of one tick, then three levels of 64 slots, each slot as
/// wide as the whole level below. An entry moves down a level when its slot is reached, at most three times. Entries
/// are in one array and linked by index. A handle contains a generation, so that the cancellation of a timer that has
/// already fired has no effect.
///
/// The caller defines the tick, which is one millisecond for the event loop. A timer never fires early. A deadline
/// beyond the wheel's range (about 18 hours with a tick of one millisecond) is put into the last slot, and scheduled
/// again when that slot is reached.
struct TimerWheel<Target>: ~Copyable {
  struct Handle: Equatable {
    fileprivate let index: Int32
    fileprivate let generation: UInt32
  }

  struct Expired {
    let target: Target
    let token: Int
  }

  private struct Entry {
    var deadline: UInt64
    var target: Target?
    var token: Int
    var generation: UInt32
    var slot: Int32
    var previous: Int32
    var next: Int32
  }

  private static var none: Int32 { -1 }
  private static var fineBits: UInt64 { 8 }
  private static var coarseBits: UInt64 { 6 }
  private static var coarseLevels: Int { 3 }
  private static var slotCount: Int { 256 + 64 * coarseLevels }
  /// The number of ticks that the whole wheel covers.
  private static var span: UInt64 { 1 << (fineBits + coarseBits * UInt64(coarseLevels)) }

  private var entries: [Entry] = []
  private var firstFree: Int32 = Self.none
  private var slots = [Int32](repeating: Self.none, count: Self.slotCount)
  /// One bit per slot, which is set if the slot has entries. So the next deadline is found by counting zero bits, and
  /// not by visiting slots.
  private var occupied = [UInt64](repeating: 0, count: Self.slotCount / 64)
  private var current: UInt64
  private(set) var count = 0

  init(now: UInt64) { current = now }

  mutating func schedule(at deadline: UInt64, target: Target, token: Int) -> Handle {
    let index: Int32
    if firstFree != Self.none {
      index = firstFree
      firstFree = entries[Int(index)].next
    } else {
      index = Int32(entries.count)
      entries.append(
        Entry(deadline: 0, target: nil, token: 0, generation: 0, slot: Self.none, previous: Self.none, next: Self.none))
    }
    // The timers of the current tick have already fired, so a timer that is due now fires with the next tick.
    entries[Int(index)].deadline = max(deadline, current &+ 1)
    entries[Int(index)].target = target
    entries[Int(index)].token = token
    link(index)
    count &+= 1
    return Handle(index: index, generation: entries[Int(index)].generation)
  }

  /// Returns whether the timer was still pending.
  @discardableResult
  mutating func cancel(_ handle: Handle) -> Bool {
    let index = Int(handle.index)
    guard entries[index].generation == handle.generation, entries[index].target != nil else { return false }
    unlink(handle.index)
    free(handle.index)
    return true
  }

  /// Advances the time to `now` and appends the timers that are due, ordered by the tick of their deadlines.
  mutating func advance(to now: UInt64, into expired: inout [Expired]) {
    while current < now {
      guard let wake = nextWake() else {
        current = now
        return
      }
      guard wake <= now else {
        current = now
        return
      }
      current = wake
      cascade()
      fire(slot: Int(current & 255), into: &expired)
    }
  }

  /// Whether `advance(to: now)` has work to do.
  func isDue(at now: UInt64) -> Bool {
    guard current < now, let wake = nextWake() else { return false }
    return wake <= now
  }

  /// The next tick at which `advance` has work to do: a deadline, or entries to move down a level.
  func nextWake() -> UInt64? {
    guard count > 0 else { return nil }
    var best: UInt64?
    if let distance = nextOccupied(after: current, shift: 0, width: 256, firstSlot: 0) {
      best = current &+ distance
    }
    var shift = Self.fineBits
    var firstSlot = 256
    for _ in 0..<Self.coarseLevels {
      let position = current >> shift
      if let distance = nextOccupied(after: position, shift: shift, width: 64, firstSlot: firstSlot) {
        let tick = (position &+ distance) << shift
        best = best.map { min($0, tick) } ?? tick
      }
      shift += Self.coarseBits
      firstSlot += 64
    }
    return best
  }

  /// The distance from `position` to the next occupied slot of a level (1...width); nil if there is none.
  private func nextOccupied(after position: UInt64, shift: UInt64, width: UInt64, firstSlot: Int) -> UInt64? {
    let start = (position &+ 1) & (width - 1)
    var scanned: UInt64 = 0
    while scanned < width {
      let slot = (start &+ scanned) & (width - 1)
      let word = occupied[(firstSlot + Int(slot)) >> 6] >> (slot & 63)
      if word != 0 {
        let distance = scanned &+ UInt64(word.trailingZeroBitCount)
        return distance < width ? distance &+ 1 : nil
      }
      scanned &+= 64 &- (slot & 63)
    }
    return nil
  }

  /// If a slot of a higher level begins now, moves its entries down a level.
  private mutating func cascade() {
    var shift = Self.fineBits
    var firstSlot = 256
    for _ in 0..<Self.coarseLevels {
      guard current & ((1 << shift) - 1) == 0 else { return }
      let slot = firstSlot + Int((current >> shift) & 63)
      var index = slots[slot]
      slots[slot] = Self.none
      occupied[slot >> 6] &= ~(1 << UInt64(slot & 63))
      while index != Self.none {
        let next = entries[Int(index)].next
        link(index)
        index = next
      }
      shift += Self.coarseBits
      firstSlot += 64
    }
  }

  private mutating func fire(slot: Int, into expired: inout [Expired]) {
    var index = slots[slot]
    slots[slot] = Self.none
    occupied[slot >> 6] &= ~(1 << UInt64(slot & 63))
    while index != Self.none {
      let next = entries[Int(index)].next
      if let target = entries[Int(index)].target {
        expired.append(Expired(target: target, token: entries[Int(index)].token))
      }
      free(index)
      index = next
    }
  }

  private func slot(for deadline: UInt64) -> Int {
    let distance = deadline &- current
    if distance < 256 { return Int(deadline & 255) }
    if distance < 1 << 14 { return 256 + Int((deadline >> 8) & 63) }
    if distance < 1 << 20 { return 320 + Int((deadline >> 14) & 63) }
    let reachable = min(deadline, current &+ Self.span &- (1 << 20))
    return 384 + Int((reachable >> 20) & 63)
  }

  private mutating func link(_ index: Int32) {
    let slot = slot(for: max(entries[Int(index)].deadline, current))
    let first = slots[slot]
    entries[Int(index)].slot = Int32(slot)
    entries[Int(index)].previous = Self.none
    entries[Int(index)].next = first
    if first != Self.none { entries[Int(first)].previous = index }
    slots[slot] = index
    occupied[slot >> 6] |= 1 << UInt64(slot & 63)
  }

  private mutating func unlink(_ index: Int32) {
    let entry = entries[Int(index)]
    if entry.next != Self.none { entries[Int(entry.next)].previous = entry.previous }
    if entry.previous != Self.none {
      entries[Int(entry.previous)].next = entry.next
    } else {
      slots[Int(entry.slot)] = entry.next
      if entry.next == Self.none { occupied[Int(entry.slot) >> 6] &= ~(1 << UInt64(entry.slot & 63)) }
    }
  }

  private mutating func free(_ index: Int32) {
    entries[Int(index)].target = nil
    entries[Int(index)].generation &+= 1
    entries[Int(index)].next = firstFree
    firstFree = index
    count &-= 1
  }
}
