import ByteStreams
import Foundation
import Inbox
import Journal
import JournalCoding
import JournalSupport
import LoopbackSupport
import Synchronization
import Testing
import Threading

@testable import Store

/// Sessions that were removed from the configuration, and sessions that cannot be stored any more.
@Suite struct StoredSessionsTests {
  private static let day: Int64 = 86_400_000

  /// The store of a process with these sessions in its configuration, on a given day.
  private func open(_ folder: TestFolder, _ day: Int64, _ configured: String...) throws -> TestStore {
    var environment = StoreFile.Environment()
    environment.wallClock = { (20_000 + day) * Self.day }
    return try TestStore(folder.file, session: configured[0], configured: Set(configured), environment)
  }

  private func names(_ folder: TestFolder) throws -> [String] {
    try StoreInspection.check(folder.file).sessions?.map(\.name) ?? []
  }

  /// Earlier versions convert times with the row `start` if `boot` is unchanged, and compute the row if it is missing.
  @Test func theStartOfTheMachineOfAnEarlierVersionIsRemoved() throws {
    let folder = try TestFolder()
    try TestStore(folder.file).close()
    try StoreFile.open(folder.file).set(StoreSchema.Meta.start, to: "1")
    try TestStore(folder.file).close()
    #expect(try StoreFile.open(folder.file).meta(StoreSchema.Meta.start) == nil)
  }

  @Test func aSessionWithoutAConfigurationIsRemovedAfterItsTime() throws {
    let folder = try TestFolder()
    let first = try open(folder, 0, "a", "b")
    let b = try TestStore.open("b", in: first.store)
    b.journal.submit(.push(RandomSession.push(1)))
    let ticket = b.journal.submit(.accepted(RandomSession.message(1)))
    try eventually("the other session is stored") { b.journal.outcome(of: ticket) == .stored }
    try first.close()
    // Day 10 is the first start without the session. On day -20,000 the clock is not set yet.
    for day in [10, 11, -20_000, 39] as [Int64] {
      try open(folder, day, "a").close()
      let found = try StoreInspection.check(folder.file).sessions
      #expect(found?.map(\.name) == ["a", "b"])
      #expect(found?.map(\.unusedSince) == [nil, 20_010 * Self.day])
      #expect(found?.last?.pushes == 1 && found?.last?.queued == 1)
    }
    let copy = try TestFolder()
    try folder.copy(to: copy)
    // A session that is configured again still has its contents. When it is removed again, its retention begins again.
    let again = try open(copy, 45, "b", "a")
    #expect(again.restored.epoch == b.restored.epoch && again.restored.log.pushes.count == 1)
    try again.close()
    try open(copy, 50, "a").close()
    #expect(try names(copy) == ["a", "b"])
    // The retention of the removed session has ended.
    let last = try open(folder, 40, "a")
    #expect(last.metric("drawbridge_store_unused_sessions") == 0)
    try last.close()
    #expect(try names(folder) == ["a"])
    let file = try StoreFile.open(folder.file)
    for table in ["pushes", "changes"] {
      let rest = "SELECT count(*) FROM \(table) WHERE session NOT IN (SELECT id FROM sessions)"
      #expect(try file.database.integer(rest) == 0, "\(table)")
    }
    #expect(try file.database.integer("SELECT count(*) FROM meta WHERE name LIKE 'unused%'") == 0)
  }

  @Test func aSessionWithoutAConfigurationIsStillThereAfterTheFileWasReplaced() throws {
    let folder = try TestFolder()
    try open(folder, 0, "a", "b").close()
    let first = try open(folder, 0, "b")
    try first.submitAndWait([.push(RandomSession.push(1))])
    try first.close()
    let second = try open(folder, 1, "a")
    #expect(second.metric("drawbridge_store_unused_sessions") == 1)
    try FileManager.default.removeItem(atPath: folder.file)
    try second.submitAndWait([.push(RandomSession.push(1))])
    try eventually("the file is written anew") { FileManager.default.fileExists(atPath: folder.file) }
    try second.close()
    #expect(try StoreInspection.check(folder.file).sessions?.map(\.unusedSince) == [nil, 20_001 * Self.day])
  }

  /// An entry that does not follow the stored entries is a bug. Acknowledged changes stay stored, and changes that are
  /// not stored are not acknowledged.
  @Test func anEntryThatDoesNotFollowEndsTheStoringOfItsSessionOnly() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    let other = try TestStore.open("other", in: store.store)
    let kept = store.submit([.push(RandomSession.push(1))])
    try store.waitUntilStored(kept)
    let lost = store.journal.submit(.push(RandomSession.push(7)))
    try eventually("its outcome is known") { store.journal.outcome(of: lost) != .pending }
    #expect(store.journal.outcome(of: lost) == .failed && store.journal.outcome(of: kept) == .stored)
    #expect(store.journal.isFailed && !other.journal.isFailed)
    // No other gateway can take over, so the journal does not end. This gateway serves requests, and refuses messages.
    #expect(!store.journal.hasEnded)
    #expect(store.store.state.failure?.contains("session 'default'") == true)
    #expect(store.metric("drawbridge_store_failed") == 1)
    // Later entries are not stored, not even in one commit with another session's entries.
    let later = store.journal.submit(.accepted(RandomSession.message(1)))
    let ticket = other.journal.submit(.push(RandomSession.push(1)))
    try eventually("the other session is stored") { other.journal.outcome(of: ticket) == .stored }
    #expect(store.journal.outcome(of: later) == .failed && store.journal.storedPosition == 2)
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    #expect(again.store.state.failure == nil)
    try again.close()
  }

  /// Entries that no request awaits are taken together with the next awaited entry.
  @Test func entriesSubmittedBeforeAFaultInTheSameBatchAreStored() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    let before = (1...3 as ClosedRange<UInt64>).map { store.note([.push(RandomSession.push($0))]) }
    let fault = store.journal.submit(.push(RandomSession.push(7)))
    try eventually("the outcomes are known") {
      (before + [fault]).allSatisfy { store.journal.outcome(of: $0) != .pending }
    }
    #expect(store.journal.outcome(of: fault) == .failed)
    #expect(before.allSatisfy { store.journal.outcome(of: $0) == .stored })
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  @Test func aFaultyStoreThatAlsoFailsRecoversForTheOtherSessions() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    let other = try TestStore.open("other", in: store.store)
    let lost = store.journal.submit(.push(RandomSession.push(7)))
    try eventually("its outcome is known") { store.journal.outcome(of: lost) == .failed }
    try FileManager.default.removeItem(atPath: folder.file)
    let ticket = other.journal.submit(.push(RandomSession.push(1)))
    try eventually("the file is written anew") { FileManager.default.fileExists(atPath: folder.file) }
    try eventually("the other session is stored") {
      other.journal.outcome(of: ticket) == .stored && !other.journal.isFailed
    }
    #expect(store.journal.isFailed && store.store.state.failure?.contains("session 'default'") == true)
    #expect(store.metric("drawbridge_store_failed") == 1)
    try store.close()
  }
}
