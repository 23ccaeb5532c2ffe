import ByteStreams
import Foundation
import Inbox
import Journal
import JournalSupport
import Testing

@testable import Store

/// Files and paths that a store refuses to open, and does not change.
@Suite struct RefusedFileTests {
  @Test func aSecondStoreOfTheSameFileIsRefusedOrWaits() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    #expect(throws: StoreError.inUse(path: folder.file)) { try StoreFile.open(folder.file) }
    let closing = store.store
    let other = Thread { _ = closing.close(within: .seconds(30)) }
    other.start()
    let file = try StoreFile.open(folder.file, waiting: .seconds(30))
    #expect(file.condition.term == store.restored.terms.last?.term && !file.condition.endedUncleanly)
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
      #expect(try file.sessions().first?.state.log.nextPush == 2)
    }
  }

  @Test func aFileThatIsNotAStoreIsRefused() throws {
    let folder = try TestFolder()
    try Data("this is not a database, whatever its name says".utf8).write(to: URL(fileURLWithPath: folder.file))
    let text = #expect(throws: StoreError.self) { try StoreFile.open(folder.file) }
    #expect("\(String(describing: text))".contains("drawbridge store export"))
    try FileManager.default.removeItem(atPath: folder.file)
    do { try SQLiteDatabase(folder.file).execute("CREATE TABLE t (a)") }
    #expect(throws: StoreError.foreign(path: folder.file)) { try StoreFile.open(folder.file) }
  }

  @Test func aDatabaseOfAnotherProgramIsNotChanged() throws {
    let folder = try TestFolder()
    do { try SQLiteDatabase(folder.file).execute("CREATE TABLE t (a)") }
    let before = try folder.contents()
    #expect(throws: StoreError.foreign(path: folder.file)) { try StoreFile.open(folder.file) }
    #expect(try folder.contents() == before)
  }

  @Test func anUnusableFolderIsReportedWithTheReason() throws {
    func reason(_ path: String) throws -> String {
      let error = #expect(throws: StoreError.self) { try StoreFile.open(path) }
      #expect(error?.concernsFile == false)
      return "\(error.map { "\($0)" } ?? "")"
    }
    let folder = try TestFolder()
    #expect(try reason("/proc/drawbridge/store.db").contains("folder '/proc/drawbridge' does not exist"))
    #expect(try reason(folder.path).contains("it is a folder"))
    #expect(FileManager.default.createFile(atPath: folder.file, contents: nil))
    #expect(try reason(folder.file + "/store.db").contains("'\(folder.file)' is not a folder"))
    mkfifo(folder.path + "/pipe", 0o600)
    #expect(try reason(folder.path + "/pipe").contains("not a regular file"))
  }

  /// SQLite would remove the log.
  @Test(arguments: [true, false])
  func aWriteAheadLogWithoutItsFileIsNotRemoved(isEmpty: Bool) throws {
    let folder = try TestFolder()
    if isEmpty { #expect(FileManager.default.createFile(atPath: folder.file, contents: nil)) }
    try Data(repeating: 1, count: 5_000).write(to: URL(fileURLWithPath: folder.file + "-wal"))
    let before = try folder.contents()
    let error = #expect(throws: StoreError.self) { try StoreFile.open(folder.file) }
    #expect(error?.concernsFile == true)
    #expect(try folder.contents() == before)
  }

  @Test func aFileThatIsCutShortIsDamaged() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...100 as ClosedRange<UInt64> { store.submit([.push(RandomSession.push(number, size: 1_000))]) }
    try store.close()
    let bytes = try Data(contentsOf: URL(fileURLWithPath: folder.file))
    for size in [1, 99, 4096, bytes.count / 2] {
      try bytes.prefix(size).write(to: URL(fileURLWithPath: folder.file))
      let error = #expect(throws: StoreError.self) {
        let file = try StoreFile.open(folder.file)
        _ = try file.sessions()
      }
      #expect(error?.concernsFile == true, "\(size): \(String(describing: error))")
    }
  }

  @Test func aSymbolicLinkNamesTheSameStore() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    let link = folder.path + "/link.db"
    try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: folder.file)
    #expect(throws: StoreError.inUse(path: folder.file)) { try TestStore(link) }
    try store.close()
    try TestStore(link).close()
    #expect(!folder.names.contains("link.db-wal") && !folder.names.contains("link.db.lock"))
  }
}
