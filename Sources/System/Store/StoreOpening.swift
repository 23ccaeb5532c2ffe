import ByteStreams
import Host
import Journal
import Logging

/// Begins the terms of the stored sessions when a store is opened, and decides which sessions are removed.
struct StoreOpening {
  /// By how much the counter of the first term after a backup exceeds the last counter in the backup. The original
  /// store may have begun further terms since the backup. With this distance, their counters are most likely smaller.
  private static var branchDistance: UInt64 { 1 << 10 }

  let term: UInt64
  /// The stored sessions, without the removed sessions.
  private(set) var sessions: [StoredSession] = []
  /// The sessions that the configuration lacks.
  private(set) var unused: [StoredSession] = []
  /// The sessions whose retention has ended, with their contents.
  private(set) var removed: [StoreInspection.Summary.Session] = []
  private let time: Int64

  /// Begins a term for all sessions. If entries may be missing, each session must report a gap, even if it is not
  /// running now. The term is synchronised when this call returns.
  ///
  /// - Parameter configured: the sessions of the configuration; nil if all stored sessions count as configured.
  init(_ file: StoreFile, _ settings: StoreSettings, configured: Set<String>?) throws(StoreError) {
    let distance = file.condition.isBackup ? Self.branchDistance : 1
    let term = JournalTerm.number(after: file.condition.term, distance: distance, random: file.environment.termBits())
    self.term = term
    time = file.environment.wallClock()
    for session in try file.sessions() { judge(session, settings, configured) }
    do throws(SQLiteDatabase.Failure) {
      for session in sessions where !session.isClosed {
        guard session.content.begin(term: term, mayHaveLostEntries: file.condition.mayHaveLostEntries) else {
          throw .refused(.damaged("the terms of session '\(session.name)'"))
        }
      }
      var changes: [StoreFile.Changes] = []
      try file.begin(term: term, settings.sync) { () throws(SQLiteDatabase.Failure) in
        for session in sessions {
          changes.append(try file.write(session))
          if !session.isClosed { try file.writeUse(of: session) }
        }
      }
      for (session, changes) in zip(sessions, changes) {
        session.apply(changes)
        session.clear()
      }
      sessions.removeAll(where: \.isClosed)
      try file.synchronise(settings.sync == .always)
    } catch {
      throw StoreFile.storeError(error, file.path)
    }
  }

  private mutating func judge(_ session: StoredSession, _ settings: StoreSettings, _ configured: Set<String>?) {
    sessions.append(session)
    guard let configured, !configured.contains(session.name) else {
      session.unusedSince = nil
      return
    }
    // At a start, the clock may be far behind until it is synchronised. So a stored time is never changed, and a new
    // time is not before the newest push or message.
    let since = session.unusedSince ?? max(time, session.state.newestTime ?? time)
    session.unusedSince = since
    if max(0, time - since) >= settings.keepUnused.millisecondsRoundedUp {
      removed.append(StoreInspection.Summary.Session(session))
      _ = session.content.apply(.closed)
    } else {
      unused.append(session)
    }
  }

  func log(_ file: StoreFile, since start: MonotonicTime, keeping keepUnused: TimeSpan, _ logger: Logger) {
    let duration = ProcessInformation.monotonicTime() - start
    let mayHaveLostEntries = file.condition.mayHaveLostEntries
    let fields: [LogField] = [
      .text("path", file.path), .number("term", Int(clamping: term)), .number("sessions", sessions.count),
      .number("bytes", file.bytes), .seconds("seconds", duration),
      .flag("clean", !file.condition.endedUncleanly), .flag("may_have_lost_entries", mayHaveLostEntries),
    ]
    if mayHaveLostEntries {
      logger.warning("store opened; the last changes may be missing", fields)
    } else {
      logger.info("store opened", fields)
    }
    if !unused.isEmpty {
      let oldest = unused.compactMap(\.unusedSince).min() ?? time
      let left = keepUnused - .milliseconds(time - oldest)
      logger.warning(
        "the store keeps sessions that the configuration does not have",
        [
          .text("sessions", Self.list(unused.map(\.name))), .number("count", unused.count),
          .number("hours_until_first_is_removed", Int(left.seconds / 3_600)),
        ])
    }
    if !removed.isEmpty {
      logger.warning(
        "sessions that the configuration has not had for 'store.keep_unused' were removed from the store",
        [
          .text("sessions", Self.list(removed.map(\.name))), .number("count", removed.count),
          .number("pushes", removed.reduce(0) { $0 + $1.pushes }),
          .number("messages", removed.reduce(0) { $0 + $1.queued }),
          .number("consumers", removed.reduce(0) { $0 + $1.consumers.count }),
        ])
    }
  }

  private static func list(_ names: [String]) -> String { names.sorted().prefix(5).joined(separator: ", ") }
}
