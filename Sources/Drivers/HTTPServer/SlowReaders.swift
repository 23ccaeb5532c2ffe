import Metrics
import Reactor
import Threading

/// The responses of the process that clients have not taken, the one whose progress was noticed longest ago first.
///
/// A waiting response keeps the pushes in it alive, also when the buffer has long dropped them. So what waits is limited over all
/// clients of the process, and above the limit the slowest is reset, whichever loop it is on, not the newest.
final class UnsentResponses: Sendable {
  fileprivate typealias Handle = ArrivalList<Response>.Handle

  fileprivate struct Response {
    let loop: SlowReaders.ChosenReaders
    let reader: SlowReaders.Handle
    let bytes: Int
  }

  private let limit: Int
  /// Written under the lock only.
  private let unsent: Gauge
  private let shed: Counter
  private let responses = Locked(ArrivalList<Response>())

  /// - Parameters:
  ///   - limit: bytes that may wait for all clients of the process together.
  ///   - unsent: counts them.
  ///   - shed: counts the clients that were reset.
  init(limit: Int, unsent: Gauge, shed: Counter) {
    self.limit = limit
    self.unsent = unsent
    self.shed = shed
  }

  /// Adds a response and makes room for it: the slowest readers are reset until there is, maybe this very one.
  fileprivate func add(_ response: Response) -> Handle {
    responses.withLock { responses in
      let handle = responses.append(response)
      unsent.add(response.bytes)
      while unsent.current > limit, let slowest = responses.popFirst() {
        unsent.add(-slowest.bytes)
        shed.add()
        slowest.loop.reset(slowest.reader)
      }
      return handle
    }
  }

  /// False where it has been chosen to be reset meanwhile.
  fileprivate func remove(_ handle: Handle) -> Bool {
    responses.withLock { responses in
      guard let response = responses.remove(handle) else { return false }
      unsent.add(-response.bytes)
      return true
    }
  }
}

/// The clients of one loop that have not taken all of their responses: the loop's part of `UnsentResponses`.
final class SlowReaders {
  fileprivate typealias Handle = ArrivalList<Channel>.Handle

  /// A slow reader, until `remove`.
  struct Entry {
    fileprivate let response: UnsentResponses.Handle
    fileprivate let reader: Handle
  }

  /// The readers that other loops have chosen to be reset.
  fileprivate final class ChosenReaders: Sendable {
    let readers = Locked<[Handle]>([])
    let signal: Signal
    init(_ signal: Signal) { self.signal = signal }

    func reset(_ reader: Handle) {
      readers.withLock { $0.append(reader) }
      signal.notify()
    }
  }

  /// Connects the signal to the readers, which do not exist yet when the signal is made.
  private final class Relay: SignalTarget {
    weak var readers: SlowReaders?
    func signalled() { readers?.signalled() }
  }

  private let responses: UnsentResponses
  private let chosen: ChosenReaders
  private var channels = ArrivalList<Channel>()

  init(_ responses: UnsentResponses, loop: LoopContext) {
    self.responses = responses
    let relay = Relay()
    chosen = ChosenReaders(loop.makeSignal(for: relay))
    relay.readers = self
  }

  /// Clients that have not taken all of their responses.
  var count: Int { channels.count }

  /// Notes that `bytes` wait for `channel`'s client.
  func add(_ channel: Channel, bytes: Int) -> Entry {
    let reader = channels.append(channel)
    return Entry(response: responses.add(.init(loop: chosen, reader: reader, bytes: bytes)), reader: reader)
  }

  /// False where the client must be reset: it was the slowest when there was too much.
  func remove(_ entry: Entry) -> Bool {
    channels.remove(entry.reader)
    return responses.remove(entry.response)
  }

  func signalled() {
    let readers = chosen.readers.withLock { readers in
      defer { readers = [] }
      return readers
    }
    // A reader that was removed meanwhile resets itself: `remove` has returned false to it.
    for reader in readers { channels.remove(reader)?.reset() }
  }
}
