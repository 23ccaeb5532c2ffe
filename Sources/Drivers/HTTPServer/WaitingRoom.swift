import Reactor
import Synchronization

/// The waiting connections of one event loop: long polls and whatever else waits for news, grouped by the bell they wait for.
///
/// A bell wakes its group in slices, with I/O in between: waking ten thousand at once would block the loop, and every other client on
/// it, for some 75 ms. A client that is responded to in the first slice asks again before the last slice, and must not be woken by
/// the same news: so entries are numbered, and a ring wakes those that were there when it came.
final class WaitingRoom {
  /// Groups up to which none is removed, so that a lone client which polls again and again finds its group.
  private static var groupsKept: Int { 64 }

  /// An entry in the room.
  struct Place {
    fileprivate let group: WaitingGroup
    fileprivate let handle: ArrivalList<WaitingGroup.Entry>.Handle
  }

  private let loop: LoopContext
  private var groups: [ObjectIdentifier: WaitingGroup] = [:]
  /// The group that was used last: most often there is one.
  private var latest: WaitingGroup?
  /// Number of groups at which those without entries are removed.
  private var sweepAt = WaitingRoom.groupsKept
  private(set) var isDraining = false

  init(loop: LoopContext) { self.loop = loop }

  /// Connections that wait.
  var count: Int { groups.values.reduce(0) { $0 + $1.count } }

  /// How often a connection has entered since the groups were made.
  var entryCount: UInt64 { groups.values.reduce(0) { $0 + $1.lastNumber } }

  /// Registers `connection` to be woken when `bell` rings. The caller must look for news once more before it waits: the room does
  /// not wake for what happened before.
  func enter(_ connection: HTTPConnection, for bell: Bell) -> Place {
    let group = group(of: bell)
    return Place(group: group, handle: group.add(connection))
  }

  /// Does nothing for a place whose connection has been woken.
  func leave(_ place: Place) { place.group.remove(place.handle) }

  /// Ends every wait, now and from now on.
  func drain() {
    isDraining = true
    for group in groups.values { group.wakeAll(because: .drain) }
  }

  private func group(of bell: Bell) -> WaitingGroup {
    if let latest, latest.bell === bell { return latest }
    let key = ObjectIdentifier(bell)
    if let group = groups[key] {
      latest = group
      return group
    }
    if groups.count >= sweepAt { removeEmptyGroups() }
    let group = WaitingGroup(bell, loop: loop)
    groups[key] = group
    latest = group
    return group
  }

  /// Bells come and go with their sessions.
  private func removeEmptyGroups() {
    latest = nil
    groups = groups.filter { _, group in
      if group.count == 0 { group.close() }
      return group.count > 0
    }
    // So that all sweeps together cost no more than the groups that were made.
    sweepAt = max(Self.groupsKept, 2 * groups.count)
  }
}

/// The connections of one loop that wait for one bell.
private final class WaitingGroup {
  private static var slice: Int { 256 }

  struct Entry {
    unowned let connection: HTTPConnection
    var number: UInt64
  }

  /// Why entries are woken.
  enum Reason { case ring, drain }

  let bell: Bell
  private let listener: Bell.Listener
  private let nextSlice: Signal
  private var entries = ArrivalList<Entry>()
  private(set) var lastNumber: UInt64 = 0
  /// Entries up to this number are to be woken; later ones have seen the news.
  private var dueThrough: UInt64 = 0
  private var reason = Reason.ring

  init(_ bell: Bell, loop: LoopContext) {
    self.bell = bell
    let ring = Relay { $0.wakeAll(because: .ring) }
    let slice = Relay { $0.wakeSlice() }
    listener = Bell.Listener(loop.makeSignal(for: ring))
    nextSlice = loop.makeSignal(for: slice)
    ring.group = self
    slice.group = self
    bell.add(listener)
  }

  /// Connects a signal to the group, which does not exist yet when the signal is made.
  private final class Relay: SignalTarget {
    weak var group: WaitingGroup?
    private let action: (WaitingGroup) -> Void
    init(_ action: @escaping (WaitingGroup) -> Void) { self.action = action }
    func signalled() { if let group { action(group) } }
  }

  var count: Int { entries.count }

  func close() { bell.remove(listener) }

  func add(_ connection: HTTPConnection) -> ArrivalList<Entry>.Handle {
    listener.isWaiting.store(true, ordering: .sequentiallyConsistent)
    lastNumber += 1
    return entries.append(Entry(connection: connection, number: lastNumber))
  }

  func remove(_ handle: ArrivalList<Entry>.Handle) {
    entries.remove(handle)
    noteRemoval()
  }

  /// An entry added between the news and their signal is woken too. It has seen the news, finds none, and waits again.
  func wakeAll(because reason: Reason) {
    if reason == .drain { self.reason = .drain }
    dueThrough = lastNumber
    wakeSlice()
  }

  private func wakeSlice() {
    var seen = 0
    while let first = entries.first, first.number <= dueThrough {
      guard seen < Self.slice else {
        nextSlice.notify()
        return
      }
      seen += 1
      if reason == .drain || first.connection.isConcernedByRing {
        _ = entries.popFirst()
        first.connection.channel.wake()
      } else {
        // It has seen these news, and keeps its place.
        lastNumber += 1
        entries.moveFirstToEnd { $0.number = lastNumber }
      }
    }
    noteRemoval()
  }

  private func noteRemoval() {
    if entries.isEmpty { listener.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }
}
