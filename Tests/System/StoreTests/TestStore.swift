import ByteStreams
import CFaults
import Foundation
import Inbox
import Journal
import Logging
import LoopbackSupport
import Outbox
import Testing
import Metrics
import Reactor
import Synchronization
import Threading

@testable import Store

/// A folder that is removed at the end.
final class TestFolder {
  let path: String
  var file: String { path + "/store.db" }

  init() throws {
    path = NSTemporaryDirectory() + "drawbridge-store-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  var names: [String] { ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).sorted() }

  /// The contents of the files, except the lock. An empty log counts as missing.
  func contents() throws -> [String: Data] {
    var result: [String: Data] = [:]
    for name in names where !name.hasSuffix(".lock") {
      result[name] = try Data(contentsOf: URL(fileURLWithPath: path + "/" + name))
    }
    return result.filter { !$0.value.isEmpty || !$0.key.hasSuffix("-wal") }
  }

  /// Copies the files as they would be left if the process were killed now.
  func copy(to other: TestFolder) throws {
    for name in names where name.hasPrefix("store.db") && !name.hasSuffix(".lock") {
      try FileManager.default.copyItem(atPath: path + "/" + name, toPath: other.path + "/" + name)
    }
  }
}

struct TimedOut: Error { let what: String }

/// A store under test, with one of its sessions.
final class TestStore {
  let store: Store
  let registry = MetricsRegistry()
  private(set) var journal: any SessionJournal
  private(set) var restored: RestoredSession
  /// The state that the session must have after all submitted entries.
  var model: RestoredSession

  init(
    _ path: String, sync: StoreSettings.Sync = .interval, pendingBytes: Int = 64 << 20, session: String = "default",
    configured: Set<String>? = nil, _ environment: StoreFile.Environment = StoreFile.Environment()
  ) throws {
    var settings = StoreSettings()
    settings.engine = .sqlite
    settings.path = path
    settings.sync = sync
    settings.pendingBytes = pendingBytes
    store = try Store.start(
      settings, for: configured, environment, logger: Logger(level: .error, format: .text),
      metrics: StoreMetrics(registry))
    let opened = try Self.open(session, in: store)
    journal = opened.journal
    restored = opened.restored
    model = restored
  }

  static func open(_ name: String, in store: Store) throws -> OpenedJournal {
    let result = Locked<OpenedJournal?>(nil)
    let box = Box(result)
    store.open(name) { opened in box.value.withLock { $0 = opened } }
    try eventually("the session opens") { box.value.withLock { $0 != nil } }
    return box.value.withLock { $0! }
  }

  /// Submits entries together, and applies them to the model.
  @discardableResult
  func submit(_ entries: [JournalEntry]) -> JournalTicket {
    for entry in entries {
      let follows = model.apply(entry)
      precondition(follows, "\(entry)")
    }
    return journal.submit(contentsOf: entries)
  }

  /// Like `submit`, for entries that no request awaits.
  @discardableResult
  func note(_ entries: [JournalEntry]) -> JournalTicket {
    for entry in entries { _ = model.apply(entry) }
    return journal.note(contentsOf: entries)
  }

  /// Number of commits so far.
  var commits: Int { metric("drawbridge_store_commit_seconds_count") }

  func metric(_ name: String) -> Int {
    var text = ByteQueue()
    registry.render(into: &text)
    let line = String(decoding: text.copyBytes(), as: UTF8.self).split(separator: "\n")
      .first { $0.hasPrefix(name + " ") || $0.hasPrefix(name + "{") }
    return line.flatMap { $0.split(separator: " ").last }.flatMap { Int($0) } ?? 0
  }

  func waitUntilStored(_ ticket: JournalTicket) throws {
    try eventually("ticket \(ticket.number) is stored") { journal.outcome(of: ticket) == .stored }
  }

  func submitAndWait(_ entries: [JournalEntry]) throws { try waitUntilStored(submit(entries)) }

  func close() throws {
    guard store.close(within: .seconds(30)) else { throw TimedOut(what: "the store closes") }
  }
}

final class Box<Value: ~Copyable>: @unchecked Sendable {
  let value: Value
  init(_ value: consuming Value) { self.value = value }
}

extension RestoredSession {
  /// The state in which the next run opens the session. Its term has the random bits of `next`.
  func reopened(as next: RestoredSession, gap: GapMarks = .upstream) -> RestoredSession {
    var result = self
    let term = ((terms.last?.opening ?? 0) + 1) << 32 | (next.terms.last?.term ?? 0) & 0xFFFF_FFFF
    _ = result.apply(.opened(JournalTerm(term: term, firstPush: log.nextPush, firstDelivery: outbox.nextDelivery)))
    if gap.contains(.store) || !mayBeContinued { _ = result.apply(.log(.gap(gap))) }
    result.mayHaveLostEntries = gap.contains(.store)
    return result
  }

  /// The state without the pushes that retention has dropped in `other`. Rows are deleted as a whole, so some of these
  /// pushes may still be stored.
  func trimmed(as other: RestoredSession) -> RestoredSession {
    var result = self
    _ = result.apply(.log(.retained(other.log.retention)))
    return result
  }
}

extension StoreFile {
  /// Opens the file as the store does. The lock is released with the file.
  static func open(
    _ path: String, waiting wait: TimeSpan = .zero, _ environment: Environment = Environment()
  ) throws -> StoreFile {
    try open(path, StoreLock.take(path, waiting: wait), environment)
  }
}
