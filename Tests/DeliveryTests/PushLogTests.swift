import ByteStreams
import TestSupport
import Testing

@testable import Delivery

/// Appends `text` as the upstream's next push.
func push(_ text: String, to log: inout PushLog, time: Int64 = 0) {
  var renderer = MessageRenderer()
  log.append(renderer.render(Array(text.utf8).span, kind: .text, id: log.nextID, time: time))
}

func data(_ result: ReadResult) -> [UInt64] { result.messages.map(\.sequence) }

@Suite struct PushLogTests {
  let epoch = Epoch(0xABC)

  @Test func numbersMessagesBeforeAnybodyReads() {
    var log = PushLog(epoch: epoch, retention: Retention())
    for text in ["a", "b", "c"] { push(text, to: &log) }
    let all = log.read(after: log.earliest, limit: 10, maxBytes: 1 << 20)
    #expect(data(all) == [1, 2, 3])
    #expect(!all.more && all.gap == nil && all.cursor == log.last)
  }

  @Test func givesEveryReaderEverythingFromItsOwnCursor() {
    var log = PushLog(epoch: epoch, retention: Retention())
    for index in 0..<10 { push("\(index)", to: &log) }
    var seen: [[UInt64]] = [[], []]
    var cursors = [log.earliest, log.earliest]
    for (reader, limit) in [(0, 3), (1, 7), (0, 4), (1, 7), (0, 9)] {
      let result = log.read(after: cursors[reader], limit: limit, maxBytes: 1 << 20)
      seen[reader] += data(result)
      cursors[reader] = result.cursor
    }
    #expect(seen[0] == Array(1...10) && seen[1] == Array(1...10))
  }

  @Test func tellsHowManyMessagesRetentionDropped() {
    var log = PushLog(epoch: epoch, retention: Retention(count: 3))
    let start = log.earliest
    for index in 0..<10 { push("\(index)", to: &log) }
    let result = log.read(after: start, limit: 10, maxBytes: 1 << 20)
    #expect(result.gap == Gap(missed: 7, reason: .retention))
    #expect(data(result) == [8, 9, 10])
    #expect(log.read(after: result.cursor, limit: 10, maxBytes: 1 << 20).gap == nil)
  }

  @Test func dropsByBytesButKeepsTheNewestWhateverItsSize() {
    var log = PushLog(epoch: epoch, retention: Retention(bytes: 1000))
    for _ in 0..<5 { push(String(repeating: "x", count: 300), to: &log) }
    #expect(log.retainedCount < 5 && log.retainedBytes <= 1000)
    push(String(repeating: "y", count: 5000), to: &log)
    #expect(log.retainedCount == 1)
    #expect(data(log.read(after: log.earliest, limit: 1, maxBytes: 10)) == [6])
  }

  @Test func dropsByAgeAlsoWhenNothingArrives() {
    var log = PushLog(epoch: epoch, retention: Retention(age: .seconds(10)))
    push("old", to: &log, time: 1_000)
    push("new", to: &log, time: 9_000)
    log.expire(now: 12_000)
    #expect(log.retainedCount == 1)
    log.expire(now: 60_000)
    #expect(log.retainedCount == 0)
    #expect(log.read(after: Cursor(epoch: epoch, sequence: 0), limit: 1, maxBytes: 1).gap?.missed == 2)
  }

  @Test func saysThatACursorIsFromBeforeARestart() throws {
    var log = PushLog(epoch: epoch, retention: Retention())
    push("a", to: &log)
    let foreign = try log.resolve(.cursor(Cursor(epoch: Epoch(1), sequence: 99)), now: 0)
    let result = log.read(after: foreign, limit: 10, maxBytes: 1 << 20)
    #expect(result.gap == Gap(missed: nil, reason: .restart) && data(result) == [1])
    #expect(result.cursor.epoch == epoch)
  }

  @Test func refusesACursorAheadOfTheLog() {
    let log = PushLog(epoch: epoch, retention: Retention())
    #expect(throws: CursorAheadError.self) {
      try log.resolve(.cursor(Cursor(epoch: epoch, sequence: 1)), now: 0)
    }
  }

  @Test func tellsAnUpstreamGapOnceToEachReaderAtItsPlace() {
    var log = PushLog(epoch: epoch, retention: Retention())
    push("a", to: &log)
    log.noteUpstreamGap()
    log.noteUpstreamGap()
    push("b", to: &log)
    let before = log.read(after: log.earliest, limit: 10, maxBytes: 1 << 20)
    #expect(data(before) == [1] && before.gap == nil && before.more)
    let after = log.read(after: before.cursor, limit: 10, maxBytes: 1 << 20)
    #expect(data(after) == [3] && after.gap == Gap(missed: nil, reason: .upstream) && !after.more)
    #expect(!log.read(after: after.cursor, limit: 10, maxBytes: 1 << 20).isNews)
  }

  @Test func resolvesTheWordsForStartingPoints() throws {
    var log = PushLog(epoch: epoch, retention: Retention())
    for index in 1...10 { push("\(index)", to: &log, time: Int64(index) * 1000) }
    #expect(try log.resolve(.earliest, now: 0).sequence == 0)
    #expect(try log.resolve(.latest, now: 0).sequence == 10)
    #expect(try log.resolve(.last(3), now: 0).sequence == 7)
    #expect(try log.resolve(.last(99), now: 0).sequence == 0)
    #expect(try log.resolve(.since(.seconds(2)), now: 10_000).sequence == 7)
    #expect(try log.resolve(.since(.hours(1)), now: 10_000).sequence == 0)
    #expect(try log.resolve(.since(.zero), now: 11_000).sequence == 10)
  }

  /// Whatever is appended and trimmed while a reader goes along: what it got and what it was told it missed is everything.
  @Test(arguments: 1...20)
  func deliveredAndMissedAddUp(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    var log = PushLog(epoch: epoch, retention: Retention(count: Int.random(in: 1...40, using: &generator)))
    var cursor = log.earliest
    var accounted: UInt64 = 0
    var appended: UInt64 = 0
    var lastSeen: UInt64 = 0
    for _ in 0..<5_000 {
      switch UInt8.random(in: 0..<10, using: &generator) {
      case 0..<6:
        push("m", to: &log)
        appended += 1
      case 6:
        log.noteUpstreamGap()
      default:
        let result = log.read(after: cursor, limit: Int.random(in: 1...9, using: &generator), maxBytes: 1 << 20)
        for message in result.messages {
          #expect(message.sequence > lastSeen)
          lastSeen = message.sequence
        }
        accounted += UInt64(result.messages.count)
        if result.gap?.reason == .retention { accounted += result.gap?.missed ?? 0 }
        cursor = result.cursor
      }
    }
    while log.hasNews(after: cursor) {
      let result = log.read(after: cursor, limit: 100, maxBytes: 1 << 20)
      accounted += UInt64(result.messages.count)
      if result.gap?.reason == .retention { accounted += result.gap?.missed ?? 0 }
      cursor = result.cursor
    }
    #expect(accounted == appended)
  }
}

@Suite struct CursorTests {
  private func parse(_ text: String) -> StartingPoint? {
    StartingPoint(Array(text.utf8).span) { $0.equals("10m") ? .minutes(10) : nil }
  }

  @Test func readsWhatItWrites() {
    let cursor = Cursor(epoch: Epoch(0x0123_4567_89AB), sequence: 42)
    var text = ByteQueue()
    cursor.write(into: &text)
    #expect(parse("0123456789ab.42") == .cursor(cursor))
    let written = text.bytes.text()
    #expect(written == "0123456789ab.42")
  }

  @Test func readsWords() {
    #expect(parse("earliest") == .earliest)
    #expect(parse("latest") == .latest)
    #expect(parse("-5") == .last(5))
    #expect(parse("since=10m") == .since(.minutes(10)))
  }

  @Test(arguments: [
    "", "0", "x", "-", "--1", "-1x", "0123456789ab.", "0123456789AB.1", "0123456789ab.-1", "since=", "since=x",
    "0123456789ab.99999999999999999999", "0123456789ab 1", "LATEST",
  ])
  func refusesEverythingElse(text: String) { #expect(parse(text) == nil) }
}

@Suite struct MessageRendererTests {
  private func render(_ payload: [UInt8], _ kind: MessageKind) -> String {
    var renderer = MessageRenderer()
    let id = Cursor(epoch: Epoch(1), sequence: 2)
    return renderer.render(payload.span, kind: kind, id: id, time: 1_795_253_400_125).rendered.bytes.text()
  }

  @Test(arguments: [
    ("{\"a\": 1}", "{\"a\": 1}"), ("12", "12"), ("hello", "\"hello\""), ("", "\"\""), ("[1,", "\"[1,\""),
    ("\"\\ud800\"", "\"\\\"\\\\ud800\\\"\""),
  ])
  func embedsJSONAsItCameAndOtherTextAsAString(payload: String, data: String) {
    #expect(
      render(Array(payload.utf8), .text)
        == "{\"id\":\"000000000001.2\",\"time\":\"2026-11-21T09:30:00.125Z\",\"type\":\"text\",\"topic\":null,\"data\":\(data)}"
    )
  }

  @Test func showsBinaryAsBase64() {
    #expect(render([0xFF, 0x00], .binary).hasSuffix("\"type\":\"binary\",\"topic\":null,\"data_base64\":\"/wA=\"}"))
  }
}

@Suite struct WaiterListTests {
  @Test func keepsOrderThroughRandomRemovals() {
    var generator = SeededGenerator(seed: 5)
    var list = WaiterList<Int>()
    var model: [(Int, WaiterList<Int>.Handle)] = []
    for step in 0..<10_000 {
      switch UInt8.random(in: 0..<4, using: &generator) {
      case 0, 1: model.append((step, list.append(step)))
      case 2 where !model.isEmpty:
        let victim = model.remove(at: Int.random(in: 0..<model.count, using: &generator))
        let removed = list.remove(victim.1)
        #expect(removed == victim.0)
      default:
        let taken = list.popFirst()
        #expect(taken == (model.isEmpty ? nil : model.removeFirst().0))
      }
      let count = list.count
      #expect(count == model.count)
    }
  }

  @Test func anOldHandleNeverRemovesALaterWaiterInItsPlace() {
    var list = WaiterList<Int>()
    let old = list.append(1)
    _ = list.popFirst()
    _ = list.append(2)
    let removed = list.remove(old)
    #expect(removed == nil)
    let first = list.first
    #expect(first == 2)
  }
}
