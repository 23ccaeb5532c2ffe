import Inbox
import Reactor
import Synchronization

/// The held polls of one loop: where they wait, and how they are woken.
///
/// News wakes them in slices with I/O in between: ten thousand at once would hold the loop, and everybody else on it, for
/// some 75 ms. Who is answered in the first slice asks again before the last one, and must not be woken by it: so the slices
/// have a signal of their own, which brings nobody news.
final class PollRoom {
  private static var slice: Int { 256 }

  fileprivate struct Waiter {
    let channel: Channel
    let number: UInt64
  }

  /// A place among the waiters.
  struct Place {
    fileprivate let handle: WaiterList<Waiter>.Handle
  }

  private let listener: Bell.Listener
  private let nextSlice: Signal
  private var waiters = WaiterList<Waiter>()
  private var entered: UInt64 = 0
  /// Everybody up to this number is to be woken for the last news; those who came after it have seen it.
  private var dueThrough: UInt64 = 0
  private(set) var isDraining = false

  init(bell: Bell, loop: LoopContext) {
    let news = Relay { $0.newsCame() }
    let slice = Relay { $0.wakeSlice() }
    listener = Bell.Listener(loop.makeSignal(for: news))
    nextSlice = loop.makeSignal(for: slice)
    news.room = self
    slice.room = self
    bell.add(listener)
  }

  /// Stands between a signal and the room, which is not there yet when the signal is made.
  private final class Relay: SignalTarget {
    weak var room: PollRoom?
    private let action: (PollRoom) -> Void
    init(_ action: @escaping (PollRoom) -> Void) { self.action = action }
    func signalled() { if let room { action(room) } }
  }

  var count: Int { waiters.count }

  /// Registers `channel`. The caller must look for news once more before it waits: what came before is not told again.
  func enter(_ channel: Channel) -> Place {
    listener.isWaiting.store(true, ordering: .sequentiallyConsistent)
    entered += 1
    return Place(handle: waiters.append(Waiter(channel: channel, number: entered)))
  }

  func leave(_ place: Place) {
    waiters.remove(place.handle)
    if waiters.isEmpty { listener.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }

  private func newsCame() {
    // Who entered between the news and its signal is woken too. It has seen them, and a look tells it to go on waiting.
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
    var woken = 0
    while let first = waiters.first, first.number <= dueThrough {
      guard woken < Self.slice else {
        nextSlice.notify()
        return
      }
      _ = waiters.popFirst()
      first.channel.wake(0)
      woken += 1
    }
    if waiters.isEmpty { listener.isWaiting.store(false, ordering: .sequentiallyConsistent) }
  }
}
