import ByteStreams
import Events
import JournalCoding
import TestSupport
import Testing

@testable import Inbox

/// A stored log: the results of readers, and cursors of earlier terms.
@Suite struct StoredLogTests {
  private let epoch = Epoch(0xABC)
  private let now = MonotonicTime.zero + .hours(1)

  private func render(_ id: Cursor) -> RetainedMessage {
    var renderer = MessageRenderer()
    return renderer.render([0x31].span, kind: .text, topic: Span(), id: id, time: 0, arrival: now)
  }

  /// - Parameter ids: the terms in the ids of its messages.
  private func log(_ terms: [Term], ids: [UInt64] = [], endGap: GapMarks = []) -> PushLog {
    let clock = JournalClock(now: now, wallClock: 1_800_000_000_000)
    var stored = StoredLog()
    for term in ids {
      let message = render(Cursor(epoch: epoch, term: term, sequence: stored.nextPush))
      apply(.push(message.stored(at: clock)), to: &stored)
    }
    if !endGap.isEmpty { apply(.gap(endGap), to: &stored) }
    return PushLog(restoring: stored, epoch: epoch, terms: terms, retention: Retention(), at: clock)
  }

  /// A log in its second term, which begins with message 3.
  private func restoredLog() -> PushLog {
    log([Term(1, firstMessage: 1), Term(2, firstMessage: 3)], ids: [1, 1], endGap: .upstream)
  }

  private func start(_ cursor: Cursor, in log: PushLog) throws -> ReadStart {
    try log.resolve(.cursor(cursor), now: now)
  }

  private func event(_ change: (inout EventParts) -> Void) -> RetainedMessage {
    var parts = EventParts()
    (parts.name, parts.arguments) = (Array("chat".utf8), Array("1".utf8))
    change(&parts)
    var renderer = MessageRenderer()
    let record = parts.record
    let id = Cursor(epoch: epoch, term: 1, sequence: 1)
    return renderer.render(EventRecord(record.span), id: id, time: 0, arrival: now)
  }

  private func withoutPayload(_ message: RetainedMessage) -> String {
    var output = ByteQueue()
    message.writeWithoutPayload(into: &output)
    return String(output.bytes.text().split(separator: "\"namespace\"")[1])
  }

  @Test func theSizeOfAnEventCountsItsAttachments() {
    #expect(withoutPayload(event { _ in }) == #":"/","bytes":3}"#)
    let binary = event {
      $0.attachments = [[1, 2, 3], [], [4]]
      $0.token = Array("a-1".utf8)
    }
    #expect(binary.payloadCount == 7 && withoutPayload(binary) == #":"/","bytes":7,"ack":"a-1"}"#)
    let long = event { $0.name = Array(repeating: 0x61, count: 300) }
    #expect(withoutPayload(long).hasPrefix(#":"/","bytes":3,"event":"aaa"#))
  }

  /// Stored data may be damaged. Whatever its layout and bytes are, the reader must not access memory outside the
  /// message.
  @Test(arguments: 0..<20 as Range<UInt64>)
  func aDamagedEventStaysWithinItsBytes(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    let whole = event { $0.attachments = [[1, 2, 3], [4]] }
    for _ in 0..<2_000 {
      var bytes = [UInt8](copying: whole.rendered.bytes)
      bytes.removeLast(Int.random(in: 0..<bytes.count / 2, using: &random))
      bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
      let layout =
        Bool.random(using: &random) ? whole.layout : whole.layout ^ 1 << UInt64.random(in: 8..<40, using: &random)
      guard let message = RetainedMessage(1, arrival: now, layout: layout, rendered: ByteString(bytes)) else {
        continue
      }
      var output = ByteQueue()
      message.writeWithoutPayload(into: &output)
      message.writePayload(into: &output)
      #expect(message.namespace.count <= bytes.count)
    }
  }

  @Test func aMessageIsHiddenUntilItIsRevealed() throws {
    var log = restoredLog()
    var dropped: [RetainedMessage] = []
    let before = ReadStart(log.last)
    log.append(render(log.nextID), isHidden: true, dropping: &dropped)
    #expect(log.read(after: before, limit: 10, maxBytes: 1 << 20).messages.isEmpty)
    #expect(!log.hasNewData(after: before))
    #expect(log.message(3) == nil)
    let isNews = log.reveal(through: 3 << 1)
    #expect(isNews)
    let result = log.read(after: before, limit: 10, maxBytes: 1 << 20)
    #expect(result.messages.map(\.sequence) == [3])
    #expect(result.messages[0].id(like: result.cursor) == Cursor(epoch: epoch, term: 2, sequence: 3))
    let isNewsAgain = log.reveal(through: nil)
    #expect(!isNewsAgain)
  }

  @Test func retentionKeepsHiddenMessages() {
    var log = restoredLog()
    var dropped: [RetainedMessage] = []
    for _ in 0..<5 { log.append(render(log.nextID), isHidden: true, dropping: &dropped) }
    log.change(Retention(count: 1), now: now, dropping: &dropped)
    #expect(log.firstRetained == 3)
  }

  @Test func aCursorOfAnEarlierTermContinuesThere() throws {
    let log = restoredLog()
    let result = log.read(
      after: try start(Cursor(epoch: epoch, term: 1, sequence: 1), in: log), limit: 10, maxBytes: 1 << 20)
    #expect(result.messages.map(\.sequence) == [2])
    #expect(result.gap == nil)
    #expect(result.messages[0].id(like: result.cursor) == Cursor(epoch: epoch, term: 1, sequence: 2))
    // A reader that had received everything, even a gap at the end, still gets the gap of the restart.
    let last = try start(Cursor(epoch: epoch, term: 1, sequence: 2, isAfterGap: true), in: log)
    #expect(log.read(after: last, limit: 10, maxBytes: 1 << 20).gap?.reasons == [.upstream])
  }

  @Test func aCursorBeyondTheEndOfItsTermGetsTheGapStore() throws {
    let log = restoredLog()
    let lost = try start(Cursor(epoch: epoch, term: 1, sequence: 7), in: log)
    let gap = log.read(after: lost, limit: 10, maxBytes: 1 << 20).gap
    #expect(gap == Gap(missed: nil, reasons: [.upstream, .store]))
  }

  @Test func aCursorAheadOfTheTermIsRefused() {
    let log = restoredLog()
    #expect(throws: CursorAheadError.self) { try start(Cursor(epoch: epoch, term: 2, sequence: 3), in: log) }
    for term in [3, 1 << 32] as [UInt64] {
      #expect(throws: CursorAheadError.self) { try start(Cursor(epoch: epoch, term: term, sequence: 1), in: log) }
    }
  }

  /// Another gateway has shown the push to clients before this gateway learns that the push is stored.
  @Test func inASharedLogACursorOfAHiddenPushWaits() throws {
    let term: UInt64 = 3 << 32 | 7
    var log = log([Term(term, firstMessage: 1)])
    var dropped: [RetainedMessage] = []
    for _ in 1...4 { log.append(render(log.nextID), isHidden: true, dropping: &dropped) }
    _ = log.reveal(through: 2)
    let cursor = Cursor(epoch: epoch, term: term, sequence: 3)
    for point in [StartingPoint.cursor(cursor), .validator(cursor)] {
      let start = try log.resolve(point, now: now)
      #expect(start.cursor == cursor && start.gap == nil)
      var filtered = start
      let (isNews, isFilteredNews) = (
        log.hasNewData(after: start), log.hasNewData(after: &filtered, matching: TopicFilter())
      )
      #expect(!isNews && !isFilteredNews && filtered == start)
      let nothing = log.read(after: start, limit: 9, maxBytes: .max)
      #expect(!nothing.hasContent && !nothing.more && nothing.cursor == cursor)
    }
    #expect(throws: CursorAheadError.self) { try self.start(Cursor(epoch: epoch, term: term, sequence: 5), in: log) }
    _ = log.reveal(through: nil)
    let start = try start(cursor, in: log)
    #expect(log.read(after: start, limit: 9, maxBytes: .max).messages.map(\.sequence) == [4])
  }

  /// Each interruption of the store begins a term. A reader may thus come back with a cursor of a term that the log no
  /// longer keeps.
  @Test func aCursorOfAForgottenTermContinuesWhereItWas() throws {
    func term(_ counter: UInt64) -> UInt64 { counter << 32 | 7 }
    let log = log(
      (1_100...1_163).map { Term(term($0), firstMessage: $0 - 1_097) },
      ids: Array(repeating: term(1_163), count: 66))
    func read(_ counter: UInt64, _ sequence: UInt64) throws -> ReadResult {
      let cursor = Cursor(epoch: epoch, term: term(counter), sequence: sequence)
      return log.read(after: try start(cursor, in: log), limit: 100, maxBytes: 1 << 20)
    }
    for counter in [1_099, 600] as [UInt64] {
      let result = try read(counter, 2)
      #expect(result.messages.first?.sequence == 3 && result.gap?.reasons == [.store], "\(counter)")
      // The reader continues at the end of its term at the latest.
      #expect(try read(counter, 9).messages.first?.sequence == 3, "\(counter)")
    }
    // A cursor of a lost branch: the log now has other messages at the positions that the reader received.
    for counter in [587, 80] as [UInt64] {
      let result = try read(counter, 2)
      #expect(result.messages.first?.sequence == 1 && result.gap?.reasons == [.store], "\(counter)")
    }
  }

  /// There were two terms with the same counter. One term was lost, with the messages that readers had received in it.
  @Test func aCursorOfALostTermGetsTheGapStoreAndTheTermBefore() throws {
    func term(_ counter: UInt64, _ random: UInt64) -> UInt64 { counter << 32 | random }
    let terms = [term(1, 9), term(2, 5), term(3, 7)]
    let log = log(
      [Term(terms[0], firstMessage: 1), Term(terms[1], firstMessage: 3), Term(terms[2], firstMessage: 5)],
      ids: (0..<5).map { terms[$0 / 2] })
    for random in [2, 8] as [UInt64] {
      let lost = Cursor(epoch: epoch, term: term(2, random), sequence: 4)
      let result = log.read(after: try start(lost, in: log), limit: 10, maxBytes: 1 << 20)
      #expect(result.messages.map(\.sequence) == [1, 2, 3, 4, 5])
      #expect(result.gap?.reasons == [.store])
    }
    let known = Cursor(epoch: epoch, term: terms[1], sequence: 4)
    #expect(log.read(after: try start(known, in: log), limit: 10, maxBytes: 1 << 20).gap == nil)
    let later = Cursor(epoch: epoch, term: term(4, 1), sequence: 9)
    let result = log.read(after: try start(later, in: log), limit: 10, maxBytes: 1 << 20)
    #expect(result.messages.map(\.sequence) == [5] && result.gap?.reasons == [.store])
    #expect(!log.isKnown(later) && log.isKnown(known))
    let ahead = Cursor(epoch: epoch, term: terms[2], sequence: 6)
    #expect(throws: CursorAheadError.self) { try start(ahead, in: log) }
  }

  /// Submitted changes, and the changes that replace them, restore a log with the same contents for readers.
  @Test(arguments: 0..<20 as Range<UInt64>)
  func aStoredLogIsTheLogThatSubmittedIt(seed: UInt64) throws {
    var random = SeededGenerator(seed: seed)
    var clock = JournalClock(now: now, wallClock: 1_800_000_000_000)
    let retention = Retention(count: 20, age: .seconds(60))
    var live = PushLog(
      restoring: StoredLog(), epoch: epoch, terms: [Term(1, firstMessage: 1)], retention: retention, at: clock)
    var stored = StoredLog()
    for _ in 0..<300 {
      let step = Int64.random(in: 0...8_000, using: &random)
      clock = JournalClock(now: clock.now + .milliseconds(step), wallClock: clock.wallClock + step)
      var change = LogChange.gap(.upstream)
      var dropped: [RetainedMessage] = []
      if Int.random(in: 0..<4, using: &random) == 0 {
        live.recordGap(.upstream)
      } else {
        let message = render(live.nextID).arriving(at: clock.now)
        live.append(message, dropping: &dropped)
        change = .push(message.stored(at: clock))
      }
      for change in [change, .trimmed(before: live.firstRetained)] { apply(try coded(change), to: &stored) }
      if Int.random(in: 0..<20, using: &random) == 0 {
        let before = stored
        stored = StoredLog()
        for change in [.retained(before.retention)] + before.changes { apply(try coded(change), to: &stored) }
        #expect(stored == before)
      }
      let restored = PushLog(
        restoring: stored, epoch: epoch, terms: [Term(1, firstMessage: 1)], retention: retention, at: clock)
      #expect(restored.last == live.last && restored.firstRetained == live.firstRetained)
      let number = UInt64.random(in: 0...live.last.sequence, using: &random)
      let start = ReadStart(Cursor(epoch: epoch, term: 1, sequence: number))
      let (left, right) = (
        live.read(after: start, limit: 5, maxBytes: .max), restored.read(after: start, limit: 5, maxBytes: .max)
      )
      #expect(left.gap == right.gap && left.cursor == right.cursor && left.more == right.more)
      #expect(left.messages.map(\.sequence) == right.messages.map(\.sequence))
      #expect(left.messages.map(\.arrival) == right.messages.map(\.arrival))
    }
  }

  private func apply(_ change: LogChange, to stored: inout StoredLog) {
    let follows = stored.apply(change)
    #expect(follows)
  }

  private func coded(_ change: LogChange) throws -> LogChange {
    var coder = JournalCoder(appendingTo: ByteQueue())
    change.write(&coder)
    let bytes = coder.finish()
    var reader = JournalCoder(reading: bytes.bytes)
    let read = LogChange(tag: reader.byte(nil), &reader)
    #expect(read == change && reader.rest == 0)
    return try #require(read)
  }

  @Test func aCursorWithATermIsWrittenAndRead() {
    let cursor = Cursor(epoch: epoch, term: 12, sequence: 34, isAfterGap: true)
    var text = ByteQueue()
    cursor.write(into: &text)
    #expect(text.bytes.text() == "p-000000000abc.12.34g")
    #expect(Cursor(text.bytes) == cursor)
    for wrong in [
      "p-000000000abc.0.34", "p-000000000abc.01.34", "p-000000000abc.1.2.3", "p-000000000abc.9223372036854775808.1",
    ] {
      #expect(Cursor(Array(wrong.utf8).span) == nil)
    }
  }
}
