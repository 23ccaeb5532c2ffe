import ByteStreams
import Consumers
import Events
import Foundation
import Inbox
import Journal
import JournalCoding
import JournalSupport
import Outbox
import Testing
import UpstreamProtocol

@testable import Store

@Suite struct InspectionTests {
  private func export(_ path: String) throws -> (lines: [String], unreadable: Int) {
    var lines: [String] = []
    let unreadable = try StoreInspection.export(path) { line in
      lines.append(String(decoding: line.copyBytes().dropLast(), as: UTF8.self))
    }
    return (lines, unreadable)
  }

  private func push(_ number: UInt64, size: Int = 1) -> JournalEntry {
    let text = "{\"id\":\"\(number)\",\"data\":\"\(String(repeating: "x", count: size))\"}"
    return .push(StoredPush(number: number, time: 0, layout: 0, rendered: ByteString(Array(text.utf8))))
  }

  @Test func aCheckReportsTheContentsOfTheStore() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([push(1), push(2), .accepted(RandomSession.message(4))])
    #expect(throws: StoreError.inUse(path: folder.file)) { try StoreInspection.check(folder.file) }
    try store.close()
    let summary = try StoreInspection.check(folder.file)
    #expect(summary.term == store.restored.terms.last?.term && !summary.endedUncleanly)
    let session = try #require(summary.sessions?.first)
    #expect(session.name == "default" && session.pushes == 2 && session.nextPush == 3 && session.queued == 1)
    // A check does not begin a term.
    #expect(try StoreInspection.check(folder.file).term == summary.term)
  }

  @Test func aBackupOfAClosedStoreCanBeOpened() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([push(1)])
    #expect(throws: StoreError.inUse(path: folder.file)) {
      try StoreInspection.backUp(folder.file, to: folder.path + "/copy.db")
    }
    try store.close()
    try StoreInspection.backUp(folder.file, to: folder.path + "/copy.db")
    #expect(throws: StoreError.self) { try StoreInspection.backUp(folder.file, to: folder.path + "/copy.db") }
    let copy = try TestStore(folder.path + "/copy.db")
    #expect(copy.restored.log.nextPush == 2 && copy.restored.mayHaveLostEntries)
    try copy.close()
  }

  @Test func aFileThatDoesNotExistIsNotCreated() throws {
    let folder = try TestFolder()
    #expect(throws: StoreError.self) { try StoreInspection.check(folder.file) }
    #expect(throws: StoreError.self) { try StoreInspection.export(folder.file) { _ in } }
    #expect(folder.names.isEmpty)
  }

  @Test func anExportHasThePushesAndTheMessagesWithoutAFinalState() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    try store.submitAndWait([push(1), .accepted(RandomSession.message(1)), .accepted(RandomSession.message(3))])
    try store.submitAndWait([push(2), .intended(through: 1)])
    try store.close()
    let (lines, unreadable) = try export(folder.file)
    #expect(unreadable == 0)
    #expect(
      lines == [
        #"{"session":"default","push":{"id":"1","data":"x"}}"#,
        #"{"session":"default","push":{"id":"2","data":"x"}}"#,
        #"{"session":"default","message":{"number":1,"state":"unknown","topic":null,"data":"message 1"}}"#,
        #"{"session":"default","message":{"number":3,"state":"queued","topic":null,"data_base64":"bWVzc2FnZSAz"}}"#,
      ])
  }

  @Test func consumersAndTheirDeadLettersAreShown() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    func change(_ change: ConsumerChange) -> JournalEntry { .consumer(name: "c", change) }
    var settings = ConsumerSettings()
    settings.isWorkSharing = true
    guard case .log(.push(let first)) = push(1) else { return }
    let end = JournalDeadline(time: 0, rest: 0)
    try store.submitAndWait([
      push(1), push(2), change(.put(settings, position: 0)),
      change(.buried(StoredDeadLetter(push: first, reason: .rejected, deliveries: 2))),
      change(.leased(Lease(number: 2, attempt: 1, bits: 7), end: end)),
      change(.moved(ConsumerProgress(position: 2, frontier: 4))),
    ])
    try store.close()
    let consumer = try #require(StoreInspection.check(folder.file).sessions?.first?.consumers.first)
    #expect(consumer.name == "c" && consumer.isWorkSharing && consumer.position == 1)
    #expect(consumer.leases == 1 && consumer.deadLetters == 1)
    #expect(
      try export(folder.file).lines.suffix(2) == [
        #"{"session":"default","consumer":{"name":"c","share":true,"position":1,"leases":1}}"#,
        #"{"session":"default","dead_letter":{"consumer":"c","reason":"rejected","deliveries":2,"push":{"id":"1","data":"x"}}}"#,
      ])
  }

  @Test func anExportHasTheEnvelopesOfEvents() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    var parts = EventParts()
    (parts.name, parts.arguments, parts.attachments) = (Array("b\"".utf8), Array("1,{}".utf8), [[1, 2, 3], []])
    let message = StoredMessage(
      number: 1, payload: ByteString(parts.record), kind: .text, topic: nil, deadline: nil, time: 0)
    try store.submitAndWait([.speaks(.socketIO), .accepted(message)])
    try store.close()
    #expect(
      try export(folder.file).lines == [
        #"{"session":"default","message":{"number":1,"state":"queued","topic":null,"event":"b\"","namespace":"/","args":[1,{}],"attachments":["AQID",""]}}"#
      ])
  }

  @Test func anExportOfADamagedFileHasTheReadableRows() throws {
    let folder = try TestFolder()
    let store = try TestStore(folder.file)
    for number in 1...200 as ClosedRange<UInt64> { try store.submitAndWait([push(number, size: 600)]) }
    try store.close()
    let url = URL(fileURLWithPath: folder.file)
    var bytes = try Data(contentsOf: url)
    let middle = bytes.count / 4096 / 2
    for offset in 0..<4096 { bytes[middle * 4096 + offset] = 0xA5 }
    try bytes.write(to: url)
    #expect(throws: StoreError.self) { try StoreInspection.check(folder.file) }
    let (lines, unreadable) = try export(folder.file)
    #expect(unreadable > 0)
    #expect(lines.count > 150 && lines.count < 200, "\(lines.count)")
    #expect(Set(lines).count == lines.count)
    #expect(try Data(contentsOf: url) == bytes)
  }
}
