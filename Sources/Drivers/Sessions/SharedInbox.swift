import ByteStreams
import Inbox
import Reactor
import Synchronization
import Threading

/// The inbox of one session: the pushes retained for clients, shared by every event loop.
///
/// The upstream's loop appends, and clients on any loop read. A push is judged and rendered before it is appended, and what it pushes out is
/// freed after it: the lock that readers share is held for as long as it takes to take references.
package final class SharedInbox: Sendable {
  /// What appending takes, behind a lock of its own that no reader waits for.
  private struct Appender: ~Copyable {
    var renderer = MessageRenderer()
    /// What the log has let go of; empty between two calls.
    var dropped: [RetainedMessage] = []

    /// Frees what was dropped. The array itself is kept, unless an exceptional message has dropped exceptionally many.
    mutating func free() { dropped.removeAll(keepingCapacity: dropped.count <= Self.droppedKept) }
    private static let droppedKept = 1024
  }

  /// Taken before `log`.
  private let appender = Locked(Appender())
  private let log: Locked<PushLog>
  /// How often the log has changed; counted within the lock, after the change.
  private let changes = Atomic<UInt64>(0)
  /// Rung after every change that a reader may wait for.
  package let bell = Bell()

  package init(epoch: Epoch, retention: Retention) {
    log = Locked(PushLog(epoch: epoch, retention: retention))
  }

  /// `payload` of a text is UTF-8. `time` is that of the day, in milliseconds of UNIX time.
  package func append(_ payload: Span<UInt8>, kind: MessageKind, time: Int64, now: MonotonicTime) {
    appender.withLock { appender in
      let id = log.withLock { $0.nextID }
      let message = appender.renderer.render(payload, kind: kind, id: id, time: time, arrival: now)
      log.withLock { log in
        log.append(message, dropping: &appender.dropped)
        changes.add(1, ordering: .releasing)
      }
      appender.free()
    }
    bell.ring()
  }

  /// The upstream was away: what it would have pushed is not known.
  package func noteUpstreamGap() {
    log.withLock {
      $0.noteUpstreamGap()
      changes.add(1, ordering: .releasing)
    }
    bell.ring()
  }

  package func expire(now: MonotonicTime) {
    appender.withLock { appender in
      log.withLock { log in
        log.expire(now: now, dropping: &appender.dropped)
        changes.add(1, ordering: .releasing)
      }
      appender.free()
    }
  }

  /// A number that is another one after every change: what was read after asking for it is read again for as long as it stays.
  package var revision: UInt64 { changes.load(ordering: .acquiring) }

  package func resolve(_ start: StartingPoint, now: MonotonicTime) throws(CursorAheadError) -> ReadStart {
    let result: Result<ReadStart, CursorAheadError> = log.withLock { log in
      do throws(CursorAheadError) {
        return .success(try log.resolve(start, now: now))
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  package func read(after start: ReadStart, limit: Int, maxBytes: Int) -> ReadResult {
    log.withLock { $0.read(after: start, limit: limit, maxBytes: maxBytes) }
  }

  package func hasNews(after start: ReadStart) -> Bool { log.withLock { $0.hasNews(after: start) } }

  /// For metrics and the state of the session.
  package var summary: (last: Cursor, count: Int, bytes: Int) {
    log.withLock { ($0.last, $0.retainedCount, $0.retainedBytes) }
  }
}
