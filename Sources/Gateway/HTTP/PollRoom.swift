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

  private let watcher: PushStore.Watcher
  private var signal: Signal { watcher.signal }
  private var waiters = WaiterList<Channel>()
  /// Waiters that are still to be woken for the last news; those who came after it have seen it.
  private var due = 0
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
  func enter(_ channel: Channel) -> WaiterList<Channel>.Handle {
    watcher.isWaiting.store(true, ordering: .sequentiallyConsistent)
    return waiters.append(channel)
  }

  func leave(_ handle: WaiterList<Channel>.Handle) {
    if waiters.remove(handle) != nil, due > 0 { due -= 1 }
    if waiters.isEmpty { watcher.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }

  func signalled() {
    if due == 0 { due = waiters.count }
    wakeSlice(.news)
  }

  /// Ends every wait, now and from now on.
  func drain() {
    isDraining = true
    due = waiters.count
    wakeSlice(.drain)
  }

  private func wakeSlice(_ reason: Wake) {
    var woken = 0
    while due > 0, woken < Self.slice, let channel = waiters.popFirst() {
      channel.wake(isDraining ? Wake.drain.rawValue : reason.rawValue)
      due -= 1
      woken += 1
    }
    if due > 0 { signal.notify() }
    if waiters.isEmpty { watcher.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }
}
