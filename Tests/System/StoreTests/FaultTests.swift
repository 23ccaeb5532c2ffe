import ByteStreams
import CFaults
import Foundation
import Inbox
import Journal
import JournalSupport
import LoopbackSupport
import Synchronization
import TestSupport
import Testing

@testable import Store
@testable import Submissions

/// File systems that fail, lose data and stall: see `CFaults.h`.
@Suite struct FaultTests {
  private static let number = Atomic<Int>(0)
  /// The number of seeds. `make powerloss` sets more, and lets every operation fail.
  private static let longForm = ProcessInfo.processInfo.environment["DRAWBRIDGE_POWER_FAILURES"].flatMap { UInt64($0) }
  private static var seeds: UInt64 { longForm ?? 2 }

  /// An environment with a file system of its own.
  private static func environment() throws -> (OpaquePointer, StoreFile.Environment) {
    let name = "faults-\(number.add(1, ordering: .relaxed).newValue)"
    var environment = StoreFile.Environment()
    environment.fileSystem = name
    environment.retryInterval = .milliseconds(5)
    return (try #require(faults_register(name)), environment)
  }

  /// Whichever operation fails, exactly the acknowledged changes are restored, and the store works again when the disk
  /// does.
  @Test(arguments: [FAULTS_WRITE, FAULTS_SYNC, FAULTS_TRUNCATE, FAULTS_OPEN, FAULTS_DELETE], [EIO, ENOSPC])
  func aFaultAtAnyOperationLosesNothingThatWasAcknowledged(kind: Int32, code: Int32) throws {
    var at: Int64 = 1
    while true {
      let folder = try TestFolder()
      let (faults, environment) = try Self.environment()
      var writer = RandomSession(seed: UInt64(at), opensTerms: false)
      let store = try TestStore(
        folder.file, sync: at % 2 == 0 || kind == FAULTS_SYNC ? .always : .interval, environment)
      faults_fail(faults, kind, at, at % 3 == 0 ? 3 : 1, code)
      for _ in 0..<8 {
        let entries = writer.nextEntries()
        let ticket = store.submit(entries + [writer.nextPushEntry()])
        try eventually("the entry is stored, or the store has failed") { store.journal.outcome(of: ticket) != .pending }
        #expect(store.journal.outcome(of: ticket) == .stored || store.journal.isFailed || faults_failed(faults) > 0)
      }
      let hasFailed = faults_failed(faults) > 0
      faults_clear(faults)
      try eventually("the store works") { !store.journal.isFailed }
      try store.submitAndWait([writer.nextPushEntry()])
      try store.close()
      let again = try TestStore(folder.file)
      #expect(again.restored.trimmed(as: store.model) == store.model.reopened(as: again.restored), "operation \(at)")
      try again.close()
      guard hasFailed, at < (Self.longForm == nil ? 60 : 1_000) else { break }
      at += kind == FAULTS_WRITE && Self.longForm == nil ? 7 : 1
    }
    // Every run has writes and synchronisations.
    if kind == FAULTS_WRITE || kind == FAULTS_SYNC { #expect(at > 3) }
  }

  /// Clients create and close sessions for as long as the process runs. A session may end while the store does not
  /// work, and another session may get its name before the end is stored.
  @Test(arguments: [nil, EIO, ENOSPC])
  func aSessionLeavesNoMemoryWhenItsEndIsStored(code: Int32?) throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    var progress: [Weak<JournalProgress>] = []
    var epochs: Set<UInt64> = []
    for _ in 1...3 {
      let opened = try TestStore.open("created", in: store.store)
      epochs.insert(opened.restored.epoch)
      progress.append(Weak(try #require(opened.journal as? QueuedJournal).progress))
      if let code { faults_fail(faults, FAULTS_WRITE, 1, 1_000_000, code) }
      let end = opened.journal.submit(.closed)
      _ = opened.journal.submit(.gap(.upstream))
      try eventually("the end is stored, or the store has failed") { opened.journal.outcome(of: end) != .pending }
      #expect((opened.journal.outcome(of: end) == .failed) == (code != nil))
      faults_clear(faults)
      try eventually("the end is stored") { opened.journal.outcome(of: end) == .stored }
    }
    #expect(epochs.count == 3)
    try eventually("the sessions are forgotten") { progress.allSatisfy { $0.object == nil } }
    try store.close()
  }

  private struct Weak<Object: AnyObject> {
    weak var object: Object?

    init(_ object: Object) { self.object = object }
  }

  @Test func aFailedFileIsKeptAndNotUsedAgain() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    try store.submitAndWait([.push(RandomSession.push(1))])
    faults_fail(faults, FAULTS_SYNC, 1, 1, EIO)
    try store.submitAndWait([.push(RandomSession.push(2))])
    #expect(faults_failed(faults) == 1)
    #expect(folder.names.contains { $0.hasPrefix("store.db.failed-") })
    #expect(!folder.names.contains { $0.hasPrefix("store.db.new") })
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  /// The process ends before the new file is complete, or between its completion and the replacement of the failed
  /// file.
  @Test(arguments: [true, false])
  func aReplacementIsCompletedAtTheNextStartOrHasNotHappened(isComplete: Bool) throws {
    let (folder, other) = (try TestFolder(), try TestFolder())
    let store = try TestStore(folder.file)
    try store.submitAndWait([.push(RandomSession.push(1))])
    try store.close()
    try FileManager.default.copyItem(atPath: folder.file, toPath: other.file)
    // The failed file ends with this push. The new file has more pushes.
    let failed = try TestStore(other.file)
    try failed.submitAndWait([.push(RandomSession.push(2))])
    let newer = try TestStore(folder.file)
    try newer.submitAndWait([.push(RandomSession.push(2)), .push(RandomSession.push(3))])
    let found = try TestFolder()
    try other.copy(to: found)
    if isComplete { try newer.close() }
    for name in folder.names where !name.hasSuffix(".lock") {
      try FileManager.default.copyItem(
        atPath: folder.path + "/" + name, toPath: found.file + ".new" + name.dropFirst("store.db".count))
    }
    let after = try TestStore(found.file)
    #expect(after.restored.log.nextPush == (isComplete ? 4 : 3))
    #expect(found.names.contains { $0.contains("failed") } == isComplete)
    #expect(!found.names.contains { $0.contains(".new") })
    try after.close()
    try failed.close()
    if !isComplete { try newer.close() }
  }

  /// If the disk is full when the log is copied, no session is affected, since the log itself is valid.
  @Test func withoutRoomForTheCopyOfTheLogTheStoreWorks() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    faults_fail_in(faults, "store.db", FAULTS_WRITE, ENOSPC)
    for number in 1...80 as ClosedRange<UInt64> {
      try store.submitAndWait([.push(RandomSession.push(number, size: 100_000))])
    }
    #expect(faults_failed(faults) > 0)
    #expect(!store.journal.isFailed)
    faults_clear(faults)
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  @Test func entriesSubmittedDuringARecoveryHaveNotFailed() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    faults_fail(faults, FAULTS_SYNC, 1, 1, EIO)
    faults_stall(faults, 300)
    let first = store.submit([.push(RandomSession.push(1))])
    try eventually("a new file is written") { folder.names.contains { $0.hasSuffix(".new") } }
    let second = store.submit([.push(RandomSession.push(2))])
    #expect(store.journal.isFailed)
    #expect(store.journal.outcome(of: first) == .pending && store.journal.outcome(of: second) == .pending)
    faults_stall(faults, 0)
    try store.waitUntilStored(first)
    try store.waitUntilStored(second)
    // The next recoveries fail.
    faults_fail(faults, FAULTS_SYNC, 1, .max, EIO)
    let third = store.submit([.push(RandomSession.push(3))])
    try eventually("there were several attempts") { faults_failed(faults) > 3 }
    try eventually("the entry has failed") { store.journal.outcome(of: third) == .failed }
    faults_clear(faults)
    try store.close()
  }

  @Test func onlyTheLatestFailedFilesAreKept() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    let old = (1...5).map { "store.db.failed-100000000\($0)" }
    for name in old + ["other.db.failed-1000000000"] {
      #expect(FileManager.default.createFile(atPath: folder.path + "/" + name, contents: nil))
    }
    faults_fail(faults, FAULTS_SYNC, 1, 1, EIO)
    try store.submitAndWait([.push(RandomSession.push(1))])
    #expect(folder.names.filter { $0.contains("store.db.failed-") && !$0.hasSuffix("-wal") }.count == 3)
    #expect(folder.names.contains(old[4]) && !folder.names.contains(old[2]))
    #expect(folder.names.contains("other.db.failed-1000000000"))
    try store.close()
  }

  @Test func filesThatFailWithinASecondAreAllKept() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    for number in 1...3 as ClosedRange<UInt64> {
      faults_fail(faults, FAULTS_SYNC, 1, 1, EIO)
      try store.submitAndWait([.push(RandomSession.push(number))])
      #expect(folder.names.filter { $0.contains("store.db.failed-") && !$0.hasSuffix("-wal") }.count == Int(number))
    }
    try store.close()
  }

  /// Commits before the failure are not synchronised, so the recovery must synchronise even if no session has changed.
  @Test func aStoreThatFailsToSynchroniseWorksAgainAfterASynchronisation() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    try store.submitAndWait([.push(RandomSession.push(1))])
    faults_fail(faults, FAULTS_WRITE, 1, .max, ENOSPC)
    try eventually("the store has failed") { store.journal.isFailed }
    try eventually("there were several attempts") { faults_failed(faults) > 3 }
    #expect(store.journal.isFailed)
    let before = faults_seen(faults)
    faults_clear(faults)
    try eventually("the store works") { !store.journal.isFailed }
    #expect(faults_seen(faults) >= before)
    try store.close()
  }

  @Test func aReplacementWithoutRoomLeavesNoFile() throws {
    let folder = try TestFolder()
    var (faults, environment) = try Self.environment()
    // No further attempt is made before the store is closed.
    environment.retryInterval = .hours(1)
    let store = try TestStore(folder.file, sync: .always, environment)
    for number in 1...20 as ClosedRange<UInt64> {
      try store.submitAndWait([.push(RandomSession.push(number, size: 10_000))])
    }
    faults_fail_in(faults, "store.db.new-wal", FAULTS_WRITE, ENOSPC)
    try FileManager.default.removeItem(atPath: folder.file)
    store.submit([.push(RandomSession.push(21))])
    try eventually("there was an attempt") { faults_failed(faults) > 0 }
    try eventually("the attempt is removed") { !folder.names.contains { $0.contains(".new") } }
    faults_clear(faults)
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  @Test func whileTheDiskIsFullPushesAreKeptInMemoryAndStoredLater() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    faults_fail(faults, FAULTS_WRITE, 1, .max, ENOSPC)
    let ticket = store.submit([.push(RandomSession.push(1))])
    try eventually("the store has failed") { store.journal.outcome(of: ticket) == .failed }
    #expect(store.store.state.failure?.contains("full") == true)
    for number in 2...50 as ClosedRange<UInt64> { store.submit([.push(RandomSession.push(number))]) }
    store.submit([.trimmed(before: 20), .gap(.upstream)])
    try eventually("there were several attempts") { faults_failed(faults) > 3 }
    #expect(store.journal.isFailed)
    faults_clear(faults)
    try store.waitUntilStored(ticket)
    #expect(store.store.state.failure == nil)
    // The file was not damaged, so it was not replaced.
    #expect(!folder.names.contains { $0.contains("failed") })
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  /// The disk does not respond for two seconds. Submitters must not wait for it.
  @Test func aDiskThatStallsDelaysOnlyAcknowledgements() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    faults_fail(faults, FAULTS_SYNC, .max, 0, EIO)
    faults_stall(faults, 2_000)
    let first = store.submit([.push(RandomSession.push(1))])
    var last = first
    for number in 2...1_000 as ClosedRange<UInt64> { last = store.submit([.push(RandomSession.push(number))]) }
    // All entries were submitted before the first synchronisation ended. This checks an order of events, not a time.
    #expect(faults_seen(faults) == 0)
    #expect(store.journal.outcome(of: first) == .pending)
    #expect(store.journal.storedPosition == 0)
    faults_stall(faults, 0)
    try store.waitUntilStored(last)
    try store.close()
  }

  /// Clients that have begun at different times use common synchronisations after a while.
  @Test func clientsThatWaitForASynchronisationUseOneCommit() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    faults_stall(faults, 8)
    var number: UInt64 = 0
    func submit() -> JournalTicket {
      number += 1
      return store.submit([.intended(through: number)])
    }
    // The second group begins while the first group's entries are being stored.
    var tickets = (0..<16).map { _ in submit() }
    usleep(2_000)
    tickets += (0..<16).map { _ in submit() }
    let before = store.commits
    var rounds = 0
    while rounds < 32 * 30 {
      for client in tickets.indices where store.journal.outcome(of: tickets[client]) == .stored {
        tickets[client] = submit()
        rounds += 1
      }
      usleep(50)
    }
    // With two groups, each synchronisation would serve 16 clients.
    #expect(rounds / (store.commits - before) > 20)
    faults_stall(faults, 0)
    try store.close()
  }

  /// The power fails at any moment. All synchronised entries are restored, and the restored entries are the first
  /// submitted entries, without holes.
  @Test(arguments: [StoreSettings.Sync.always, .interval], 1...seeds)
  func aPowerFailureLosesOnlyUnsynchronisedEntries(sync: StoreSettings.Sync, seed: UInt64) throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    faults_record(faults)
    var writer = RandomSession(seed: seed, opensTerms: false)
    let store = try TestStore(folder.file, sync: sync, environment)
    // The state after each acknowledgement, and the number of operations at that time.
    var states = [(store.model, faults_recorded(faults))]
    for _ in 0..<60 {
      try store.submitAndWait(writer.nextEntries())
      states.append((store.model, faults_recorded(faults)))
    }
    let end = faults_recorded(faults)
    var random = SeededGenerator(seed: seed)
    for _ in 0..<20 {
      let cut = Int64.random(in: states[0].1...end, using: &random)
      let lost = try TestFolder()
      let loss = Bool.random(using: &random) ? 0 : random.next()
      #expect(faults_replay(faults, cut, loss, folder.path, lost.path) == 0)
      var rebooted = StoreFile.Environment()
      rebooted.boot = "after the power failure"
      let after = try TestStore(lost.file, sync: sync, rebooted)
      // With `interval`, only the beginning of the term was certainly synchronised.
      let acknowledged = sync == .always ? states.lastIndex { $0.1 <= cut } ?? 0 : 0
      let gap: GapMarks = sync == .always ? .upstream : [.upstream, .store]
      let matches = states[acknowledged...].contains { state, _ in
        after.restored.trimmed(as: state) == state.reopened(as: after.restored, gap: gap)
      }
      #expect(matches, "cut at \(cut) of \(end), loss \(loss), \(acknowledged) acknowledged")
      try after.close()
    }
    try store.close()
  }

  // MARK: Migrations

  /// Steps of a possible later schema.
  private static let laterSteps = [
    "CREATE TABLE more (id INTEGER PRIMARY KEY, size INTEGER)",
    "INSERT INTO more SELECT id, length(entries) FROM pushes",
    "CREATE INDEX pushes_of_session ON pushes (session, first)",
  ]

  /// Expects that the file has either the earlier schema or the later schema, and contains this session.
  private static func expectOneSchema(_ path: String, _ expected: RestoredSession, _ comment: String) throws -> Int {
    var later = StoreFile.Environment()
    later.steps += laterSteps
    do {
      let file = try StoreFile.open(path)
      #expect(
        try file.database.integer("SELECT count(*) FROM sqlite_schema WHERE name LIKE '%more%'") == 0, "\(comment)")
      #expect(try file.sessions().first?.state == expected, "\(comment)")
      return file.environment.steps.count
    } catch let error as StoreError {
      guard case .newerSchema = error else { throw error }
    }
    let file = try StoreFile.open(path, later)
    #expect(try file.database.integer("SELECT count(*) FROM more") ?? 0 > 0, "\(comment)")
    #expect(try file.sessions().first?.state == expected, "\(comment)")
    return file.environment.steps.count
  }

  private static func makeStore(_ folder: TestFolder, _ environment: StoreFile.Environment) throws -> RestoredSession {
    let store = try TestStore(folder.file, sync: .always, environment)
    var writer = RandomSession(seed: 5, opensTerms: false)
    for _ in 0..<40 { try store.submitAndWait(writer.nextEntries() + [writer.nextPushEntry()]) }
    try store.close()
    return try StoreFile.open(folder.file).sessions()[0].state
  }

  @Test(arguments: [FAULTS_WRITE, FAULTS_SYNC, FAULTS_TRUNCATE, FAULTS_OPEN], [EIO, ENOSPC])
  func aMigrationThatFailsLeavesTheEarlierSchema(kind: Int32, code: Int32) throws {
    let folder = try TestFolder()
    let expected = try Self.makeStore(folder, StoreFile.Environment())
    var (at, failures) = (1 as Int64, 0)
    while true {
      let copy = try TestFolder()
      try folder.copy(to: copy)
      var (faults, later) = try Self.environment()
      later.steps += Self.laterSteps
      faults_fail(faults, kind, at, 1, code)
      let opened = Result { try StoreFile.open(copy.file, later).condition.schema }
      let hasFailed = faults_failed(faults) > 0
      faults_clear(faults)
      let schema = try Self.expectOneSchema(copy.file, expected, "operation \(at)")
      if case .failure = opened, schema == StoreSchema.steps.count { failures += 1 }
      if case .success = opened { #expect(schema == later.steps.count, "operation \(at)") }
      guard hasFailed, at < 100 else { break }
      at += 1
    }
    if kind == FAULTS_WRITE || kind == FAULTS_SYNC { #expect(failures > 0) }
  }

  @Test func aPowerFailureDuringAMigrationLeavesOneSchemaOrTheOther() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    faults_record(faults)
    let expected = try Self.makeStore(folder, environment)
    let begin = faults_recorded(faults)
    var later = environment
    later.steps += Self.laterSteps
    do { _ = try StoreFile.open(folder.file, later) }
    let end = faults_recorded(faults)
    var random = SeededGenerator(seed: 7)
    var found: Set<Int> = []
    for cut in begin...end {
      for loss in [0, random.next() | 1] {
        let lost = try TestFolder()
        #expect(faults_replay(faults, cut, loss, folder.path, lost.path) == 0)
        found.insert(try Self.expectOneSchema(lost.file, expected, "cut at \(cut) of \(begin)...\(end), loss \(loss)"))
      }
    }
    #expect(found == [environment.steps.count, later.steps.count])
  }

  /// Between the closing of the failed file and its replacement, no other process may open the store.
  @Test func theLockOfTheStoreLastsWhileAFailedFileIsReplaced() throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    faults_fail(faults, FAULTS_SYNC, 1, .max, EIO)
    let ticket = store.submit([.push(RandomSession.push(1))])
    try eventually("there were several attempts") { faults_failed(faults) > 5 }
    for _ in 0..<20 {
      #expect(throws: StoreError.inUse(path: folder.file)) { try StoreLock.take(folder.file) }
      usleep(1_000)
    }
    faults_clear(faults)
    try store.waitUntilStored(ticket)
    #expect(throws: StoreError.inUse(path: folder.file)) { try StoreLock.take(folder.file) }
    try store.close()
    _ = try StoreLock.take(folder.file)
  }

  /// The kernel may have dropped pages, whatever the cause of the failure.
  @Test(arguments: [ENOSPC, EDQUOT])
  func afterAFailedSynchronisationTheFileIsNotTrusted(code: Int32) throws {
    let folder = try TestFolder()
    let (faults, environment) = try Self.environment()
    let store = try TestStore(folder.file, sync: .always, environment)
    faults_fail(faults, FAULTS_SYNC, 1, 1, code)
    try store.submitAndWait([.push(RandomSession.push(1))])
    #expect(folder.names.contains { $0.contains(".failed-") })
    try store.close()
  }

  @Test(arguments: ["", "-wal"])
  func aFileThatIsRemovedWhileItIsOpenIsWrittenAgain(suffix: String) throws {
    let folder = try TestFolder()
    let (_, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    try store.submitAndWait([.push(RandomSession.push(1))])
    try FileManager.default.removeItem(atPath: folder.file + suffix)
    // The synchronisation after a commit detects it.
    try store.submitAndWait([.push(RandomSession.push(2))])
    try eventually("the store has a file") { FileManager.default.fileExists(atPath: folder.file + suffix) }
    // The copy has the files as if the process were killed now.
    let copy = try TestFolder()
    try folder.copy(to: copy)
    let other = try TestStore(copy.file)
    #expect(other.restored == store.model.reopened(as: other.restored))
    try other.close()
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  @Test func aFileThatIsRemovedBeforeTheEndIsWrittenAgain() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([.push(RandomSession.push(1))])
    try FileManager.default.removeItem(atPath: folder.file)
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  @Test func theLockIsTakenAgainAfterTheFolderWasRecreated() throws {
    let folder = try TestFolder()
    let (_, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    try FileManager.default.removeItem(atPath: folder.path)
    try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
    store.submit([.push(RandomSession.push(1))])
    try eventually("the store has a file") { FileManager.default.fileExists(atPath: folder.file) }
    #expect(throws: StoreError.inUse(path: folder.file)) { try StoreLock.take(folder.file) }
    try store.close()
    _ = try StoreLock.take(folder.file)
  }

  /// A child process has a copy of each descriptor between its fork and its exec.
  @Test func theLockEndsWithItsOwnerDespiteAnInheritedDescriptor() throws {
    let folder = try TestFolder()
    var lock: StoreLock? = try StoreLock.take(folder.file)
    let copy = dup(try #require(lock).descriptor)
    defer { close(copy) }
    #expect(throws: StoreError.inUse(path: folder.file)) { try StoreLock.take(folder.file) }
    lock = nil
    _ = try StoreLock.take(folder.file)
  }

  @Test func aStoreThatAnotherProcessHasOpenedInTheNewFolderIsNotReplaced() throws {
    let (folder, old, new) = (try TestFolder(), try TestFolder(), try TestFolder())
    let (_, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    var lock: StoreLock? = try StoreLock.take(new.file)
    let content = Data("of another process".utf8)
    try content.write(to: URL(fileURLWithPath: new.file))
    try FileManager.default.moveItem(atPath: folder.path, toPath: old.path + "/moved")
    try FileManager.default.moveItem(atPath: new.path, toPath: folder.path)
    let ticket = store.submit([.push(RandomSession.push(1))])
    try eventually("the store has failed for this reason") {
      store.store.state.failure?.contains("another process") == true
    }
    #expect(FileManager.default.contents(atPath: folder.file) == content)
    #expect(lock != nil)
    lock = nil
    try store.waitUntilStored(ticket)
    try eventually("the store works") { store.store.state.failure == nil }
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(as: again.restored))
    try again.close()
  }

  @Test func backupsAreMadeAfterTheFolderWasRecreated() throws {
    let folder = try TestFolder()
    let (_, environment) = try Self.environment()
    let store = try TestStore(folder.file, environment)
    store.store.startControl()
    try FileManager.default.removeItem(atPath: folder.path)
    try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
    store.submit([.push(RandomSession.push(1))])
    try eventually("the socket exists") { FileManager.default.fileExists(atPath: folder.file + StoreControl.suffix) }
    #expect(try BackupRequest.send(folder.file, target: folder.path + "/copy.db", progress: { _, _ in }) == nil)
    try store.close()
    #expect(!FileManager.default.fileExists(atPath: folder.file + StoreControl.suffix))
  }

  @Test(arguments: [true, false])
  func aDamagedFileIsFoundAfterAnUncleanEndAndNotTouched(hasLog: Bool) throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...200 as ClosedRange<UInt64> { store.submit([.push(RandomSession.push(number, size: 500))]) }
    try store.submitAndWait([.intended(through: 1)])
    // Waits until the log is copied to the database, which happens after a second without entries.
    try eventually("the log is copied") { (try? Self.size(of: folder.file)) ?? 0 > 50_000 }
    if hasLog { try store.submitAndWait([.intended(through: 2)]) }
    let copy = try TestFolder()
    try folder.copy(to: copy)
    try store.close()
    if !hasLog { try FileManager.default.removeItem(atPath: copy.file + "-wal") }
    var bytes = try Data(contentsOf: URL(fileURLWithPath: copy.file))
    // Damages the page with the root of a table.
    for offset in 0..<64 { bytes[4 * 4096 + offset] ^= 0xA5 }
    try bytes.write(to: URL(fileURLWithPath: copy.file))
    let before = try copy.contents()
    let error = #expect(throws: StoreError.self) { try StoreFile.open(copy.file) }
    #expect(error?.concernsFile == true && "\(String(describing: error))".contains("export"))
    _ = try? StoreInspection.check(copy.file)
    _ = try StoreInspection.export(copy.file) { _ in }
    #expect(try copy.contents() == before)
  }

  private static func size(of path: String) throws -> Int {
    try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int ?? 0
  }
}
