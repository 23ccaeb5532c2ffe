import ByteStreams
import Delivery
import Reactor
import Synchronization
import Threading

/// The pushes of one session, shared by every event loop.
///
/// The upstream's loop appends; polls on any loop read. The lock is held for as long as it takes to take references.
final class PushStore: Sendable {
  private struct State: ~Copyable {
    var log: PushLog
    var renderer = MessageRenderer()
  }

  private let state: Locked<State>
  /// How often the log has changed; counted within the lock, after the change.
  private let changes = Atomic<UInt64>(0)
  private let watchers = Locked<[Watcher]>([])

  /// One loop's wish to hear of news.
  final class Watcher: Sendable {
    let signal: Signal
    /// Set by the loop before it looks for news the last time and waits; cleared by whoever wakes it.
    let isWaiting = Atomic(false)
    init(signal: Signal) { self.signal = signal }
  }

  init(epoch: Epoch, retention: Retention) {
    state = Locked(State(log: PushLog(epoch: epoch, retention: retention)))
  }

  func addWatcher(_ watcher: Watcher) { watchers.withLock { $0.append(watcher) } }

  /// `payload` of a text is UTF-8. `now` in milliseconds of UNIX time.
  func append(_ payload: Span<UInt8>, kind: MessageKind, now: Int64) {
    state.withLock { state in
      let message = state.renderer.render(payload, kind: kind, id: state.log.nextID, time: now)
      state.log.append(message)
      changes.add(1, ordering: .releasing)
    }
    notify()
  }

  /// The upstream was away: what it would have pushed is not known.
  func noteUpstreamGap() {
    state.withLock {
      $0.log.noteUpstreamGap()
      changes.add(1, ordering: .releasing)
    }
    notify()
  }

  func expire(now: Int64) {
    state.withLock {
      $0.log.expire(now: now)
      changes.add(1, ordering: .releasing)
    }
  }

  /// A number that is another one after every change: what was read after asking for it is read again for as long as it stays.
  var revision: UInt64 { changes.load(ordering: .acquiring) }

  func resolve(_ start: StartingPoint, now: Int64) throws(CursorAheadError) -> Cursor {
    let result: Result<Cursor, CursorAheadError> = state.withLock { state in
      do throws(CursorAheadError) {
        return .success(try state.log.resolve(start, now: now))
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  func read(after cursor: Cursor, limit: Int, maxBytes: Int) -> ReadResult {
    state.withLock { $0.log.read(after: cursor, limit: limit, maxBytes: maxBytes) }
  }

  func hasNews(after cursor: Cursor) -> Bool { state.withLock { $0.log.hasNews(after: cursor) } }

  /// For metrics and the state of the session.
  var summary: (last: Cursor, earliest: Cursor, count: Int, bytes: Int) {
    state.withLock { ($0.log.last, $0.log.earliest, $0.log.retainedCount, $0.log.retainedBytes) }
  }

  private func notify() {
    watchers.withLock { watchers in
      for watcher in watchers where watcher.isWaiting.load(ordering: .sequentiallyConsistent) {
        watcher.signal.notify()
      }
    }
  }
}
