import ByteStreams
import Continuity
import Foundation
import Inbox
import Journal
import JournalSupport
import LoopbackSupport
import Outbox
import Reactor
import TestSupport
import Testing
import Threading
import UpstreamProtocol

@testable import Store

@Suite struct StoreTests {
  @Test(arguments: 1...6 as ClosedRange<UInt64>)
  func aSessionIsRestoredAsItWasAfterAnOrderlyEnd(seed: UInt64) throws {
    let folder = try TestFolder()
    var writer = RandomSession(seed: seed, opensTerms: false)
    var first = try TestStore(folder.file)
    for run in 1...3 as ClosedRange<UInt64> {
      for _ in 0..<60 {
        let ticket = first.submit((0..<5).flatMap { _ in writer.nextEntries() })
        if seed % 2 == 0 { try first.waitUntilStored(ticket) }
      }
      try first.close()
      let expected = first.model
      first = try TestStore(folder.file)
      #expect(first.restored.trimmed(as: expected) == expected.reopened(as: first.restored), "run \(run)")
    }
  }

  @Test(arguments: 1...4 as ClosedRange<UInt64>)
  func acknowledgedEntriesSurviveTheDeathOfTheProcess(seed: UInt64) throws {
    let folder = try TestFolder()
    var writer = RandomSession(seed: seed, opensTerms: false)
    let store = try TestStore(folder.file)
    for cut in 0..<12 {
      for _ in 0..<Int(1 + seed) { try store.submitAndWait(writer.nextEntries() + writer.nextEntries()) }
      let copy = try TestFolder()
      try folder.copy(to: copy)
      let other = try TestStore(copy.file)
      #expect(
        other.restored.trimmed(as: store.model) == store.model.reopened(as: other.restored),
        "after \(cut) acknowledgements")
      #expect(!other.restored.mayHaveLostEntries)
      try other.close()
    }
    try store.close()
  }

  /// The session itself records the gap if the upstream does not restore its state.
  @Test func aSessionThatMayBeContinuedBeginsWithoutAGap() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    let continuation = Continuation(pid: [1], offset: [2])
    try store.submitAndWait([.push(RandomSession.push(1)), .continued(namespace: "/", continuation)])
    try store.close()
    for _ in 0..<2 {
      let again = try TestStore(folder.file)
      #expect(again.restored.log.gaps.isEmpty && again.restored.memory.continuations == ["/": continuation])
      try again.close()
    }
    let last = try TestStore(folder.file)
    try last.submitAndWait([.discontinued])
    try last.close()
    let again = try TestStore(folder.file)
    #expect(again.restored.log.gaps == [StoredGap(after: 1, marks: .upstream)])
    try again.close()
  }

  @Test func sessionsAreIndependent() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file, session: "a")
    let b = try TestStore.open("b", in: store.store)
    #expect(b.restored.epoch != store.restored.epoch)
    try store.submitAndWait([.push(RandomSession.push(1))])
    _ = b.journal.submit(.accepted(RandomSession.message(5)))
    try store.close()
    let again = try TestStore(folder.file, session: "b")
    #expect(again.restored.outbox.messages.keys.sorted() == [5])
    #expect(again.restored.log.nextPush == 1)
    try again.close()
  }

  @Test func aClosedSessionIsForgotten() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    let epoch = store.restored.epoch
    try store.submitAndWait([.push(RandomSession.push(1))])
    try store.waitUntilStored(store.journal.submit(.closed))
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored.epoch != epoch)
    #expect(again.restored.log.nextPush == 1)
    try again.close()
  }

  @Test func eachRunHasItsOwnTerm() throws {
    let folder = try TestFolder()
    for term in 1...3 as ClosedRange<UInt64> {
      let store = try TestStore(folder.file)
      #expect(store.restored.terms.map(\.opening) == Array(1...term))
      try store.submitAndWait([.push(RandomSession.push(store.restored.log.nextPush))])
      try store.close()
    }
  }

  @Test func theFileStaysSmallWhileRetentionDropsPushes() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    var sizes: [Int] = []
    for number in 1...6_000 as ClosedRange<UInt64> {
      var entries: [JournalEntry] = [.push(RandomSession.push(number, size: 1_000))]
      if number > 200 { entries.append(.trimmed(before: number - 199)) }
      let ticket = store.submit(entries)
      if number % 50 == 0 { try store.waitUntilStored(ticket) }
      if number == 5_000 || number == 6_000 {
        let attributes = try FileManager.default.attributesOfItem(atPath: folder.file)
        sizes.append(attributes[.size] as? Int ?? 0)
      }
    }
    // 200 kB are retained, and the log has 4 MiB when it is copied to the database.
    #expect(sizes[0] > 200_000 && sizes[1] <= 8 << 20, "\(sizes)")
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored.trimmed(as: store.model) == store.model.reopened(as: again.restored))
    #expect(again.restored.log.pushes.count < 400)
    try again.close()
  }

  /// The traffic of days: 10⁸ bytes, with a retention of 64 MiB.
  @Test func theSizeOfTheFileDependsOnRetentionAndNotOnTraffic() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    let (size, retained) = (10_000, (64 << 20) / 10_000 as UInt64)
    var largest = 0
    for number in 1...10_000 as ClosedRange<UInt64> {
      var entries: [JournalEntry] = [.push(RandomSession.push(number, size: size))]
      if number > retained { entries.append(.trimmed(before: number - retained + 1)) }
      let ticket = store.submit(entries)
      guard number % 100 == 0 else { continue }
      try store.waitUntilStored(ticket)
      largest = max(largest, StorePlace.size(of: folder.file) + StorePlace.size(of: folder.file + "-wal"))
    }
    #expect(largest > 64 << 20 && largest < 96 << 20, "\(largest)")
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored.log.nextPush == 10_001)
    #expect(again.restored.log.pushes.count < Int(retained) + 200)
    try again.close()
  }

  @Test func manyEntriesAreReplacedByTheState() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...12_000 as ClosedRange<UInt64> {
      let message = StoredMessage(
        number: number, payload: ByteString([UInt8](repeating: 7, count: 900)), kind: .text, topic: nil, deadline: nil,
        time: 0)
      let settlement = StoredSettlement(
        first: number, last: number, state: 3, reason: 0, time: 0, releasesPayloads: true)
      let ticket = store.submit([.accepted(message), .settled(settlement)])
      if number % 100 == 0 { try store.waitUntilStored(ticket) }
    }
    try store.close()
    let attributes = try FileManager.default.attributesOfItem(atPath: folder.file)
    #expect(attributes[.size] as? Int ?? 0 < 12 << 20, "of 11 MB of messages, at most 4 MiB and their copy are kept")
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  @Test func theFilesAreForTheirOwnerOnly() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([.push(RandomSession.push(1))])
    #expect(folder.names.contains("store.db-wal"))
    for name in folder.names {
      let attributes = try FileManager.default.attributesOfItem(atPath: folder.path + "/" + name)
      #expect(attributes[.posixPermissions] as? Int == 0o600, "\(name)")
    }
    try store.close()
  }

  // MARK: Loss

  @Test func afterAnUncleanEndAndARestartOfTheMachineEverySessionHasAGap() throws {
    for (sync, hasGap) in [(StoreSettings.Sync.interval, true), (.always, false)] {
      let folder = try TestFolder()
      let store = try TestStore(folder.file, sync: sync)
      try store.submitAndWait([.push(RandomSession.push(1))])
      let copy = try TestFolder()
      try folder.copy(to: copy)
      var environment = StoreFile.Environment()
      environment.boot = "another"
      let other = try TestStore(copy.file, sync: sync, environment)
      #expect(other.restored.mayHaveLostEntries == hasGap)
      #expect(other.restored.log.gaps.last?.marks == (hasGap ? [.upstream, .store] : .upstream))
      try other.close()
      try store.close()
    }
  }

  /// A session that is not used in the first run after the loss reports the gap in a later run.
  @Test func everySessionSaysThatEntriesMayBeMissing() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    _ = try TestStore.open("other", in: store.store)
    try store.submitAndWait([.push(RandomSession.push(1))])
    let copy = try TestFolder()
    try folder.copy(to: copy)
    try store.close()
    var environment = StoreFile.Environment()
    environment.boot = "another"
    // The process ends right after it has begun its term.
    let second = try TestStore(copy.file, environment)
    let killed = try TestFolder()
    try copy.copy(to: killed)
    try second.close()
    let third = try TestStore(killed.file, session: "other", environment)
    #expect(!third.restored.mayHaveLostEntries)
    #expect(third.restored.log.gaps.contains { $0.marks.contains(.store) })
    try third.close()
  }

  @Test func aBackupNeverIssuesNumbersOfTheOriginal() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([.push(RandomSession.push(1)), .accepted(RandomSession.message(1))])
    let path = folder.path + "/copy.db"
    #expect(try backUp(store.store, to: path) == nil)
    #expect(try backUp(store.store, to: path)?.contains("exists") == true)
    let copy = try TestStore(path)
    #expect(copy.restored.mayHaveLostEntries)
    #expect(copy.restored.log.gaps.last?.marks == [.upstream, .store])
    #expect(copy.restored.outbox.messages.count == 1)
    #expect(copy.restored.terms.last?.opening ?? 0 > 1 << 10)
    try copy.close()
    #expect(!folder.names.contains { $0.contains(".partial") })
    // Only the first opening of a copy counts as the opening of a backup.
    let again = try TestStore(path)
    #expect(!again.restored.mayHaveLostEntries)
    try again.close()
    try store.close()
  }

  /// A copy of an open store is like a snapshot of the machine or of the file system.
  @Test(arguments: [false, true])
  func aRestoredCopyBeginsADifferentTermThanItsOriginal(isOpen: Bool) throws {
    let (folder, copy) = (try TestFolder(), try TestFolder())
    var store = try TestStore(folder.file)
    try store.submitAndWait([.push(RandomSession.push(1))])
    if !isOpen { try store.close() }
    try folder.copy(to: copy)
    if isOpen { try store.close() }
    store = try TestStore(folder.file)
    try store.close()
    let other = try TestStore(copy.file)
    let (of, ofCopy) = (store.restored.terms, other.restored.terms)
    #expect(of.map(\.opening) == [1, 2] && ofCopy.map(\.opening) == [1, 2])
    #expect(of.first == ofCopy.first && of.last != ofCopy.last)
    try other.close()
  }

  @Test func aBackupNeverHasANameThatTheStoreUses() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for suffix in [".new", "-wal", "-shm", ".lock", ".sock", ".failed-1"] {
      let target = folder.path + "/./" + "store.db" + suffix
      #expect(try backUp(store.store, to: target)?.contains("the store uses itself") == true, "\(suffix)")
    }
    #expect(try backUp(store.store, to: folder.path + "/copy.db") == nil)
    try store.close()
    // The backup gets the name of a replacement file.
    let (copy, new) = (folder.path + "/copy.db", folder.file + ".new")
    try FileManager.default.moveItem(atPath: copy, toPath: new)
    #expect(throws: StoreError.self) { _ = try TestStore(folder.file) }
    try FileManager.default.moveItem(atPath: new, toPath: copy)
    let again = try TestStore(folder.file)
    #expect(!again.restored.mayHaveLostEntries)
    try again.close()
  }

  private func backUp(_ store: Store, to path: String, within limit: TimeSpan = .minutes(1)) throws -> String? {
    let box = Box(LockedResult())
    store.backUp(to: path, within: limit) { box.value.set($0) }
    try eventually("the backup is made") { box.value.isSet }
    return box.value.reason
  }

  @Test func aBackupEndsWhenItsTimeIsOverOrTheStoreIsClosed() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...400 as ClosedRange<UInt64> {
      store.submit([.push(RandomSession.push(number, size: 20_000))])
      if number % 10 == 0 { try store.submitAndWait([.intended(through: number)]) }
    }
    #expect(try backUp(store.store, to: folder.path + "/copy.db", within: .zero)?.contains("too long") == true)
    #expect(
      try backUp(store.store, to: folder.path + "/copy.db", within: .nanoseconds(400_000))?.contains("too long") == true
    )
    #expect(!folder.names.contains { $0.hasPrefix("copy") })
    store.store.closing.set()
    #expect(try backUp(store.store, to: folder.path + "/copy.db")?.contains("stopping") == true)
    #expect(!folder.names.contains { $0.hasPrefix("copy") })
    try store.close()
    #expect(try backUp(store.store, to: folder.path + "/copy.db")?.contains("closed") == true)
  }

  /// The request that `drawbridge store backup` sends.
  @Test func aRequestOnTheSocketMakesABackup() throws {
    let folder = try TestFolder()
    // This path is longer than a socket address can be.
    let long = folder.path + "/" + String(repeating: "long", count: 25)
    try FileManager.default.createDirectory(atPath: long, withIntermediateDirectories: true)
    let path = long + "/store.db"
    let store = try TestStore(path)
    try store.submitAndWait([.push(RandomSession.push(1))])
    #expect(throws: StoreError.self) { try BackupRequest.send(path, target: long + "/copy.db") { _, _ in } }
    let control = try #require(StoreControl.start(for: store.store))
    let mode = try FileManager.default.attributesOfItem(atPath: path + ".sock")[.posixPermissions] as? Int
    #expect(mode == 0o600)
    #expect(try BackupRequest.send(path, target: long + "/copy.db") { _, _ in } == nil)
    #expect(try BackupRequest.send(path, target: long + "/copy.db") { _, _ in }?.contains("exists") == true)
    #expect(try BackupRequest.send(path, target: "copy.db") { _, _ in }?.contains("absolute path") == true)
    #expect(try BackupRequest.send(path, target: "/none/copy.db") { _, _ in }?.contains("does not exist") == true)
    let long4096 = "/" + String(repeating: "x", count: 5_000)
    #expect(try BackupRequest.send(path, target: long4096) { _, _ in }?.contains("no request") == true)
    control.stop()
    #expect(!FileManager.default.fileExists(atPath: path + ".sock"))
    try store.close()
    #expect(try StoreInspection.check(long + "/copy.db").isBackup)
  }

  @Test func aLongReadReportsItsProgress() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...30 as ClosedRange<UInt64> {
      try store.submitAndWait([.push(RandomSession.push(number, size: 10_000)), .intended(through: number)])
    }
    try store.close()
    let reports = Box(Locked<[Int]>([]))
    var environment = StoreFile.Environment()
    environment.isReading = { _, read, bytes in
      #expect(read <= bytes)
      reports.value.withLock { $0.append(read) }
    }
    _ = try StoreFile.open(folder.file, environment).sessions()
    #expect(reports.value.withLock { $0 }.isEmpty)
    environment.progressInterval = .zero
    _ = try StoreFile.open(folder.file, environment).sessions()
    let read = reports.value.withLock { $0 }
    #expect(read.count > 50 && read == read.sorted() && read.last ?? 0 > 300_000)
  }

  @Test func aCheckReportsTheBytesThatItHasRead() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...20 as ClosedRange<UInt64> {
      try store.submitAndWait([.push(RandomSession.push(number, size: 200_000))])
    }
    try store.close()
    let reports = Box(Locked<[Int]>([]))
    var environment = StoreFile.Environment()
    let file = folder.file
    environment.isChecking = { path, read, bytes in
      #expect(path == file && (0...bytes).contains(read) && bytes > 4_000_000)
      reports.value.withLock { $0.append(read) }
    }
    func check() throws { try StoreFile.open(folder.file, environment).check("quick_check") }
    try check()
    #expect(reports.value.withLock { $0 }.isEmpty)
    environment.progressInterval = .zero
    try eventually("a check reports the bytes that it has read") {
      try check()
      return reports.value.withLock { $0 }.contains { $0 > 0 }
    }
  }

  @Test func progressIsReportedUntilTheWorkIsDone() throws {
    let reports = Box(Locked<Int>(0))
    let counter = ReadCounter()
    let read = Box(Locked<Int>(0))
    func report() -> @Sendable () -> Void {
      {
        reports.value.withLock { $0 += 1 }
        if let bytes = counter.bytes { read.value.withLock { $0 = bytes } }
      }
    }
    try ProgressReports.during(.milliseconds(1), report: report()) {
      _ = try Data(contentsOf: URL(fileURLWithPath: #filePath))
      try eventually("there are reports of the bytes that this thread has read") {
        reports.value.withLock { $0 } >= 3 && read.value.withLock { $0 } > 10_000
      }
    }
    let last = reports.value.withLock { $0 }
    usleep(5_000)
    #expect(reports.value.withLock { $0 } == last)
  }

  // MARK: Entries that no request awaits

  @Test func notesAreStoredWithTheNextCommit() throws {
    let folder = try TestFolder()
    var environment = StoreFile.Environment()
    environment.noteDelay = .seconds(600)
    let store = try TestStore(folder.file, environment)
    try store.submitAndWait([.push(RandomSession.push(1))])
    let before = store.commits
    let notes = (2...20 as ClosedRange<UInt64>).map { store.note([.intended(through: $0)]) }
    usleep(2_000)
    #expect(notes.allSatisfy { store.journal.outcome(of: $0) == .pending })
    try store.submitAndWait([.push(RandomSession.push(2))])
    #expect(notes.allSatisfy { store.journal.outcome(of: $0) == .stored })
    #expect(store.commits == before + 1)
    // An orderly end stores notes, too.
    store.note([.intended(through: 21)])
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  /// Before each note, the writer sleeps without a deadline.
  @Test func notesAreStoredByThemselvesAfterAMoment() throws {
    let folder = try TestFolder()
    var environment = StoreFile.Environment()
    environment.noteDelay = .milliseconds(1)
    let store = try TestStore(folder.file, environment)
    for number in 1...20 as ClosedRange<UInt64> {
      try store.waitUntilStored(store.note([.intended(through: number)]))
      usleep(number % 2 == 0 ? 100 : 5_000)
    }
    try store.close()
  }

  // MARK: Rows

  /// SQLite's limit is 10⁹ bytes in a row.
  @Test func aLargeCommitIsStoredInSeveralRows() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    var entries: [JournalEntry] = []
    for number in 1...40 as ClosedRange<UInt64> {
      entries.append(.push(RandomSession.push(number, size: 200_000)))
      if number % 7 == 0 { entries.append(.gap(.upstream)) }
      let message = StoredMessage(
        number: number, payload: ByteString([UInt8](repeating: 7, count: 150_000)), kind: .text, topic: nil,
        deadline: nil, time: 0)
      entries.append(.accepted(message))
    }
    try store.submitAndWait(entries)
    try store.close()
    do {
      let file = try StoreFile.open(folder.file)
      for table in ["pushes", "changes"] {
        #expect(try file.database.integer("SELECT max(length(entries)) FROM \(table)") ?? 0 < 1_300_000)
        #expect(try file.database.integer("SELECT count(*) FROM \(table)") ?? 0 > 4)
      }
      #expect(try file.sessions().first?.state == store.model)
    }
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.submitAndWait([.trimmed(before: 30)])
    try again.close()
    let last = try TestStore(folder.file)
    #expect(last.restored.log.pushes.count < 18)
    #expect(last.restored.trimmed(as: again.model) == again.model.reopened(as: last.restored))
    try last.close()
  }

  /// Entries after the end of a session are not stored, and no request waits for them.
  @Test func anEntryAfterTheEndOfItsSessionIsNotPending() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.waitUntilStored(store.journal.submit(.closed))
    try store.waitUntilStored(store.journal.submit(.gap(.upstream)))
    try store.close()
  }

  // MARK: The limit

  /// Even a session that has submitted nothing may have paused reading its upstream.
  @Test func everySessionIsNotifiedWhenUpstreamsMayBeReadAgain() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file, pendingBytes: 1)
    let other = try TestStore.open("other", in: store.store)
    let counter = NotificationCounter()
    other.journal.observe(counter)
    for number in 1...20 as ClosedRange<UInt64> {
      let before = counter.count
      try store.submitAndWait([.push(RandomSession.push(number))])
      try eventually("the other session is notified") { counter.count > before }
      try eventually("nothing waits") { !other.journal.mustPauseReading }
    }
    try store.close()
  }

  @Test func tooManyPendingEntriesAreReportedUntilTheyAreStored() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file, pendingBytes: 1)
    let ticket = store.submit([.push(RandomSession.push(1))])
    #expect(store.journal.isFull || store.journal.outcome(of: ticket) == .stored)
    try eventually("nothing waits") { !store.journal.isFull }
    #expect(store.journal.outcome(of: ticket) == .stored)
    #expect(store.journal.storedPosition == 2)
    try store.close()
  }
}

final class LockedResult: @unchecked Sendable {
  private let lock = NSLock()
  private var value: String??

  func set(_ value: String?) { lock.withLock { self.value = .some(value) } }
  var isSet: Bool { lock.withLock { value != nil } }
  var reason: String? { lock.withLock { value ?? nil } }
}

private final class NotificationCounter: JournalObserver {
  private let value = Locked(0)

  var count: Int { value.withLock { $0 } }

  func journalChanged() { value.withLock { $0 += 1 } }
}
