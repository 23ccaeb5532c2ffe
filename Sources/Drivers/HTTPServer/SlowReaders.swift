import Metrics
import Reactor
import Threading

/// The responses that clients have not taken, for the whole process, ordered by the time of their last noticed progress, oldest
/// first.
///
/// An unsent response keeps its pushes in memory, even after the inbox has dropped them. So the total is limited over all clients
/// of the process. Above the limit the slowest reader is reset, not the newest, whichever loop it is on.
final class UnsentResponses: Sendable {
  fileprivate typealias Handle = ArrivalList<Response>.Handle

  fileprivate struct Response {
    let loop: SlowReaders.ChosenReaders
    let reader: SlowReaders.Handle
    let bytes: Int
  }

  private let limit: Int
  /// Written only while the lock is held.
  private let unsent: Gauge
  private let shed: Counter
  private let responses = Locked(ArrivalList<Response>())

  /// - Parameters:
  ///   - limit: maximum unsent bytes, for all clients of the process together.
  ///   - unsent: the current number of these bytes.
  ///   - shed: counts the clients that were reset.
  init(limit: Int, unsent: Gauge, shed: Counter) {
    self.limit = limit
    self.unsent = unsent
    self.shed = shed
  }

  /// Adds a response. Above the limit, resets the slowest readers, possibly including this one.
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

  /// Returns false if the reader was chosen to be reset in the meantime.
  fileprivate func remove(_ handle: Handle) -> Bool {
    responses.withLock { responses in
      guard let response = responses.remove(handle) else { return false }
      unsent.add(-response.bytes)
      return true
    }
  }
}

/// The clients of one loop that have unsent responses: the loop's part of `UnsentResponses`.
final class SlowReaders {
  fileprivate typealias Handle = ArrivalList<Channel>.Handle

  /// The registration of a slow reader, until `remove`.
  struct Entry {
    fileprivate let response: UnsentResponses.Handle
    fileprivate let reader: Handle
  }

  /// The readers of this loop that any loop has chosen to reset. Shared between threads.
  fileprivate final class ChosenReaders: Sendable {
    let readers = Locked<[Handle]>([])
    let signal: Signal
    init(_ signal: Signal) { self.signal = signal }

    func reset(_ reader: Handle) {
      readers.withLock { $0.append(reader) }
      signal.notify()
    }
  }

  /// Breaks an initialization cycle: the signal is made before `SlowReaders` exists.
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

  /// Number of clients with unsent responses.
  var count: Int { channels.count }

  /// Registers `bytes` of unsent responses for `channel`'s client.
  func add(_ channel: Channel, bytes: Int) -> Entry {
    let reader = channels.append(channel)
    return Entry(response: responses.add(.init(loop: chosen, reader: reader, bytes: bytes)), reader: reader)
  }

  /// Returns false if the client must be reset: it was the slowest when the limit was exceeded.
  func remove(_ entry: Entry) -> Bool {
    channels.remove(entry.reader)
    return responses.remove(entry.response)
  }

  func signalled() {
    let readers = chosen.readers.withLock { readers in
      defer { readers = [] }
      return readers
    }
    // A reader that was removed in the meantime got false from `remove` and resets itself.
    for reader in readers { channels.remove(reader)?.reset() }
  }
}
