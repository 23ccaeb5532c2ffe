import Reactor
import Synchronization

/// The held connections of one event loop, grouped by the notifier they wait for.
///
/// A notification wakes its group in slices, with I/O in between. Waking ten thousand connections at once would block
/// the loop, and every other client on it, for about 75 ms. A client served in the first slice may poll again before
/// the last slice, and the same notification must not wake it again. So entries are numbered, and a notification wakes
/// only the entries that existed when it was signalled.
final class HeldRequests {
  /// Empty groups are removed only above this number of groups, so that a single client which polls repeatedly finds
  /// its group.
  private static var groupsKept: Int { 64 }

  /// Identifies the entry of a held connection.
  struct Registration {
    fileprivate let group: WaitingGroup
    fileprivate let handle: ArrivalList<WaitingGroup.Entry>.Handle
  }

  private let loop: LoopContext
  private var groups: [ObjectIdentifier: WaitingGroup] = [:]
  /// The most recently used group. Usually there is only one.
  private var latest: WaitingGroup?
  /// Number of groups at which empty groups are removed.
  private var sweepThreshold = HeldRequests.groupsKept

  init(loop: LoopContext) { self.loop = loop }

  deinit { for group in groups.values { group.close() } }

  /// Number of held connections.
  var count: Int { groups.values.reduce(0) { $0 + $1.count } }

  /// Number of entries made since the groups were created.
  var registrationCount: UInt64 { groups.values.reduce(0) { $0 + $1.lastNumber } }

  /// Registers `connection` to be woken when `notifier` notifies. The caller must advance its request again before it
  /// waits, since earlier notifications do not wake it.
  func register(_ connection: HTTPConnection, for notifier: Notifier) -> Registration {
    let group = group(of: notifier)
    return Registration(group: group, handle: group.add(connection))
  }

  /// Removes the entry, unless the connection was already woken.
  func unregister(_ registration: Registration) { registration.group.remove(registration.handle) }

  /// Wakes every entry, because the server drains.
  func drain() {
    for group in groups.values { group.wakeAll(because: .drain) }
  }

  private func group(of notifier: Notifier) -> WaitingGroup {
    if let latest, latest.notifier === notifier { return latest }
    let key = ObjectIdentifier(notifier)
    if let group = groups[key] {
      latest = group
      return group
    }
    if groups.count >= sweepThreshold { removeEmptyGroups() }
    let group = WaitingGroup(notifier, loop: loop)
    groups[key] = group
    latest = group
    return group
  }

  /// Removes groups without entries, since notifiers are created and released with their sessions.
  private func removeEmptyGroups() {
    latest = nil
    groups = groups.filter { _, group in
      if group.count == 0 { group.close() }
      return group.count > 0
    }
    // Doubling keeps the total cost of all sweeps proportional to the number of groups created.
    sweepThreshold = max(Self.groupsKept, 2 * groups.count)
  }
}

/// The connections of one loop that wait for the same notifier.
private final class WaitingGroup {
  private static var slice: Int { 256 }

  struct Entry {
    unowned let connection: HTTPConnection
    var number: UInt64
  }

  /// Why entries are woken.
  enum Reason { case notification, drain }

  let notifier: Notifier
  private let listener: Notifier.Listener
  private let nextSlice: Signal
  private let relays: [Relay]
  private var entries = ArrivalList<Entry>()
  private(set) var lastNumber: UInt64 = 0
  /// Entries up to this number must be woken. Later entries have seen the new data.
  private var dueThrough: UInt64 = 0
  private var reason = Reason.notification

  init(_ notifier: Notifier, loop: LoopContext) {
    self.notifier = notifier
    let relay = Relay { $0.wakeAll(because: .notification) }
    let slice = Relay { $0.wakeSlice() }
    relays = [relay, slice]
    listener = Notifier.Listener(loop.makeSignal(for: relay))
    nextSlice = loop.makeSignal(for: slice)
    relay.group = self
    slice.group = self
    notifier.add(listener)
  }

  /// The target of the signals, which are made before the group exists. `close()` ends the reference cycle: a weak
  /// reference would make each retain of the group, one per held connection, slower.
  private final class Relay: SignalTarget {
    var group: WaitingGroup?
    private let action: (WaitingGroup) -> Void
    init(_ action: @escaping (WaitingGroup) -> Void) { self.action = action }
    func signalled() { if let group { action(group) } }
  }

  var count: Int { entries.count }

  func close() {
    notifier.remove(listener)
    for relay in relays { relay.group = nil }
  }

  func add(_ connection: HTTPConnection) -> ArrivalList<Entry>.Handle {
    listener.isWaiting.store(true, ordering: .sequentiallyConsistent)
    lastNumber += 1
    return entries.append(Entry(connection: connection, number: lastNumber))
  }

  func remove(_ handle: ArrivalList<Entry>.Handle) {
    entries.remove(handle)
    updateListener()
  }

  /// Wakes all current entries. An entry added between the notification and its signal is woken, too; it finds no new
  /// data and waits again.
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
      if reason == .drain || first.connection.advanceAfterNotification(of: notifier) {
        _ = entries.popFirst()
        first.connection.notified()
      } else {
        // The connection has seen this data, and stays held.
        lastNumber += 1
        entries.moveFirstToEnd { $0.number = lastNumber }
      }
    }
    updateListener()
  }

  private func updateListener() {
    if entries.isEmpty { listener.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }
}
