import ByteStreams
import Foundation
import Journal
import JournalSupport
import Reactor
import TestSupport
import Testing

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
      #expect(first.restored.trimmed(as: expected) == expected.reopened(term: run + 1), "run \(run)")
    }
  }

  @Test(arguments: 1...4 as ClosedRange<UInt64>)
  func whatWasAcknowledgedSurvivesTheDeathOfTheProcess(seed: UInt64) throws {
    let folder = try TestFolder()
    var writer = RandomSession(seed: seed, opensTerms: false)
    let store = try TestStore(folder.file)
    for cut in 0..<12 {
      for _ in 0..<Int(1 + seed) { try store.submitAndWait(writer.nextEntries() + writer.nextEntries()) }
      let copy = try TestFolder()
      try folder.copy(to: copy)
      let other = try TestStore(copy.file)
      #expect(
        other.restored.trimmed(as: store.model) == store.model.reopened(term: 2), "after \(cut) acknowledgements")
      #expect(!other.restored.mayHaveLostEntries)
      try other.close()
    }
    try store.close()
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
    #expect(again.store.storedNames == ["a", "b"])
    #expect(again.restored.messages.keys.sorted() == [5])
    #expect(again.restored.nextPush == 1)
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
    #expect(again.store.storedNames == [])
    #expect(again.restored.epoch != epoch)
    #expect(again.restored.nextPush == 1)
    try again.close()
  }

  @Test func eachRunHasATermOfItsOwn() throws {
    let folder = try TestFolder()
    for term in 1...3 as ClosedRange<UInt64> {
      let store = try TestStore(folder.file)
      #expect(store.restored.terms.map(\.term) == Array(1...term))
      try store.submitAndWait([.push(RandomSession.push(store.restored.nextPush))])
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
    // What is kept is 200 kB, and what is copied at once is 4 MiB.
    #expect(sizes[0] > 200_000 && sizes[1] <= 8 << 20, "\(sizes)")
    try store.close()
    let again = try TestStore(folder.file)
    #expect(again.restored.trimmed(as: store.model) == store.model.reopened(term: 2))
    #expect(again.restored.pushes.count < 400)
    try again.close()
  }

  @Test func manyChangesAreReplacedByTheState() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...12_000 as ClosedRange<UInt64> {
      let message = JournalMessage(
        number: number, payload: SharedBytes([UInt8](repeating: 7, count: 900)), kind: .text, topic: nil, deadline: nil,
        time: 0)
      let settlement = JournalSettlement(
        first: number, last: number, state: 3, reason: 0, time: 0, releasesPayloads: true)
      let ticket = store.submit([.accepted(message), .settled(settlement)])
      if number % 100 == 0 { try store.waitUntilStored(ticket) }
    }
    try store.close()
    let attributes = try FileManager.default.attributesOfItem(atPath: folder.file)
    #expect(attributes[.size] as? Int ?? 0 < 12 << 20, "of 11 MB of messages, at most 4 MiB and their copy are kept")
    let again = try TestStore(folder.file)
    #expect(again.restored == store.model.reopened(term: 2))
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

  // MARK: Files that are refused

  @Test func aSecondStoreOfTheSameFileIsRefusedAndWaitsIfItMay() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    #expect(throws: StoreError.inUse(path: folder.file)) { try StoreFile.open(folder.file) }
    let closing = store.store
    let other = Thread { _ = closing.close(within: .seconds(30)) }
    other.start()
    let file = try StoreFile.open(folder.file, waiting: .seconds(30))
    #expect(file.condition.term == 1 && !file.condition.endedUncleanly)
  }

  @Test func aNewerSchemaIsRefused() throws {
    let folder = try TestFolder()
    try TestStore(folder.file).close()
    var environment = StoreFile.Environment()
    environment.steps += ["CREATE TABLE more (id)"]
    do { try StoreFile.open(folder.file, environment).end() }
    #expect(throws: StoreError.newerSchema(path: folder.file, found: 2, known: 1)) { try StoreFile.open(folder.file) }
  }

  @Test func anOlderSchemaMigratesInOneTransactionOrNotAtAll() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([.push(RandomSession.push(1))])
    try store.close()
    var environment = StoreFile.Environment()
    environment.steps += ["CREATE TABLE more (id)", "INSERT INTO nothing VALUES (1)"]
    #expect(throws: StoreError.self) { try StoreFile.open(folder.file, environment) }
    environment.steps[2] = "INSERT INTO more VALUES (1)"
    do {
      let file = try StoreFile.open(folder.file, environment)
      #expect(try file.database.integer("SELECT count(*) FROM more") == 1)
      #expect(try file.database.integer("PRAGMA user_version") == 3)
      #expect(try file.sessions().first?.state.nextPush == 2)
    }
  }

  @Test func aFileThatIsNoStoreIsRefused() throws {
    let folder = try TestFolder()
    try Data("this is not a database, whatever its name says".utf8).write(to: URL(fileURLWithPath: folder.file))
    let text = #expect(throws: StoreError.self) { try StoreFile.open(folder.file) }
    #expect("\(String(describing: text))".contains("drawbridge store export"))
    try FileManager.default.removeItem(atPath: folder.file)
    do { try SQLiteDatabase(folder.file).execute("CREATE TABLE t (a)") }
    #expect(throws: StoreError.foreign(path: folder.file)) { try StoreFile.open(folder.file) }
  }

  @Test func aFolderThatCannotBeWrittenIsRefused() throws {
    let error = #expect(throws: StoreError.self) { try StoreFile.open("/proc/drawbridge/store.db") }
    #expect(error?.concernsFile == false)
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
      #expect(other.restored.gaps.last?.reasons == (hasGap ? [.upstream, .store] : .upstream))
      try other.close()
      try store.close()
    }
  }

  @Test func aBackupIsACopyWhoseNumbersAreNeverThoseOfTheOriginal() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([.push(RandomSession.push(1)), .accepted(RandomSession.message(1))])
    let path = folder.path + "/copy.db"
    #expect(try backUp(store.store, to: path) == nil)
    #expect(try backUp(store.store, to: path)?.contains("exists") == true)
    let copy = try TestStore(path)
    #expect(copy.restored.mayHaveLostEntries)
    #expect(copy.restored.gaps.last?.reasons == [.upstream, .store])
    #expect(copy.restored.messages.count == 1)
    #expect(copy.restored.terms.last?.term ?? 0 > 1 << 20)
    try copy.close()
    // Only the first opening is one after a restoration.
    let again = try TestStore(path)
    #expect(!again.restored.mayHaveLostEntries)
    try again.close()
    try store.close()
  }

  private func backUp(_ store: Store, to path: String) throws -> String? {
    let box = Box(LockedResult())
    store.backUp(to: path) { box.value.set($0) }
    try waitUntil("the backup is made") { box.value.isSet }
    return box.value.reason
  }

  // MARK: The limit

  @Test func moreThanMayWaitIsReportedUntilItIsStored() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file, pendingBytes: 1)
    let ticket = store.submit([.push(RandomSession.push(1))])
    #expect(store.journal.isFull || store.journal.outcome(of: ticket) == .stored)
    try waitUntil("nothing waits") { !store.journal.isFull }
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
