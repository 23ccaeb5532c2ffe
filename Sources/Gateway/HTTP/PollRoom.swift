import Delivery
import Reactor
import Synchronization

/// The held polls of one loop: where they wait, and how they are woken.
///
/// News wakes them in slices with I/O in between: ten thousand at once would hold the loop, and everybody else on it, for
/// some 75 ms.
final class PollRoom: SignalTarget {
  private static var slice: Int { 256 }

  /// Why a held poll was woken, as `Channel.wake`'s token.
  enum Wake: Int {
    case news
    case drain
  }

  fileprivate struct Waiter {
    let channel: Channel
    let number: UInt64
  }

  /// A place among the waiters.
  struct Place {
    fileprivate let handle: WaiterList<Waiter>.Handle
  }

  private let watcher: PushStore.Watcher
  private var signal: Signal { watcher.signal }
  private var waiters = WaiterList<Waiter>()
  private var entered: UInt64 = 0
  /// Everybody up to this number is to be woken for the last news; those who came after it have seen it.
  private var dueThrough: UInt64 = 0
  private(set) var isDraining = false

  init(store: PushStore, loop: LoopContext) {
    let relay = Relay()
    watcher = PushStore.Watcher(signal: loop.makeSignal(for: relay))
    relay.room = self
    store.addWatcher(watcher)
  }

  /// Stands between the signal and the room, which is not there yet when the signal is made.
  private final class Relay: SignalTarget {
    weak var room: PollRoom?
    func signalled() { room?.signalled() }
  }

  var count: Int { waiters.count }

  /// Registers `channel`. The caller must look for news once more before it waits: what came before is not told again.
  func enter(_ channel: Channel) -> Place {
    watcher.isWaiting.store(true, ordering: .sequentiallyConsistent)
    entered += 1
    return Place(handle: waiters.append(Waiter(channel: channel, number: entered)))
  }

  func leave(_ place: Place) {
    waiters.remove(place.handle)
    if waiters.isEmpty { watcher.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }

  func signalled() {
    // News or our own next slice: who came in between is woken too, which costs a look and loses nothing.
    dueThrough = entered
    wakeSlice()
  }

  /// Ends every wait, now and from now on.
  func drain() {
    isDraining = true
    dueThrough = entered
    wakeSlice()
  }

  private func wakeSlice() {
    let reason = isDraining ? Wake.drain : Wake.news
    var woken = 0
    while let first = waiters.first, first.number <= dueThrough {
      guard woken < Self.slice else {
        signal.notify()
        return
      }
      _ = waiters.popFirst()
      first.channel.wake(reason.rawValue)
      woken += 1
    }
    if waiters.isEmpty { watcher.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }
}
