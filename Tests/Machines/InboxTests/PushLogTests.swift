import ByteStreams
import TestSupport
import Testing

@testable import Inbox

/// Appends `text` as the upstream's next push, `time` milliseconds after the origin.
func push(_ text: String, topic: String = "", to log: inout PushLog, time: UInt64 = 0) {
  var renderer = MessageRenderer()
  var dropped: [RetainedMessage] = []
  log.append(
    renderer.render(
      Array(text.utf8).span, kind: .text, topic: Array(topic.utf8).span, id: log.nextID, time: 0, arrival: moment(time)),
    dropping: &dropped)
}

func moment(_ milliseconds: UInt64) -> MonotonicTime { MonotonicTime(nanoseconds: milliseconds * 1_000_000) }

func data(_ result: ReadResult) -> [UInt64] { result.messages.map(\.sequence) }

extension PushLog {
  func read(after cursor: Cursor, limit: Int = 100, maxBytes: Int = 1 << 20) -> ReadResult {
    read(after: ReadStart(cursor), limit: limit, maxBytes: maxBytes)
  }

  /// Returns the result of a first poll from `start`.
  func first(_ start: StartingPoint, now: UInt64 = 0) throws -> ReadResult {
    read(after: try resolve(start, now: moment(now)), limit: 100, maxBytes: 1 << 20)
  }

  mutating func expire(now: UInt64) {
    var dropped: [RetainedMessage] = []
    expire(now: moment(now), dropping: &dropped)
  }
}

@Suite struct PushLogTests {
  let epoch = Epoch(0xABC)

  @Test func numbersMessagesBeforeAnyReaderReads() {
    var log = PushLog(epoch: epoch, retention: Retention())
    for text in ["a", "b", "c"] { push(text, to: &log) }
    let all = log.read(after: log.start)
    #expect(data(all) == [1, 2, 3])
    #expect(!all.more && all.gap == nil && all.cursor == log.last)
  }

  @Test func givesEveryReaderAllMessagesAfterItsCursor() {
    var log = PushLog(epoch: epoch, retention: Retention())
    for index in 0..<10 { push("\(index)", to: &log) }
    var seen: [[UInt64]] = [[], []]
    var cursors = [log.start, log.start]
    for (reader, limit) in [(0, 3), (1, 7), (0, 4), (1, 7), (0, 9)] {
      let result = log.read(after: cursors[reader], limit: limit, maxBytes: 1 << 20)
      seen[reader] += data(result)
      cursors[reader] = result.cursor
    }
    #expect(seen[0] == Array(1...10) && seen[1] == Array(1...10))
  }

  @Test func reportsHowManyMessagesRetentionDropped() {
    var log = PushLog(epoch: epoch, retention: Retention(count: 3))
    let start = log.start
    for index in 0..<10 { push("\(index)", to: &log) }
    let result = log.read(after: start)
    #expect(result.gap == Gap(missed: 7, reasons: [.retention]))
    #expect(data(result) == [8, 9, 10])
    #expect(log.read(after: result.cursor).gap == nil)
  }

  @Test func dropsByBytesButKeepsTheNewestWhateverItsSize() {
    var log = PushLog(epoch: epoch, retention: Retention(bytes: 1000))
    for _ in 0..<5 { push(String(repeating: "x", count: 300), to: &log) }
    #expect(log.retainedCount < 5 && log.retainedBytes <= 1000)
    push(String(repeating: "y", count: 5000), to: &log)
    #expect(log.retainedCount == 1)
    #expect(data(log.read(after: log.start, maxBytes: 10)) == [6])
  }

  @Test func dropsByAgeEvenIfNothingArrives() {
    var log = PushLog(epoch: epoch, retention: Retention(age: .seconds(10)))
    push("old", to: &log, time: 1_000)
    push("new", to: &log, time: 9_000)
    log.expire(now: 12_000)
    #expect(log.retainedCount == 1)
    log.expire(now: 60_000)
    #expect(log.retainedCount == 0)
    #expect(log.read(after: log.start).gap?.missed == 2)
  }

  @Test func reportsThatACursorIsFromBeforeARestart() throws {
    var log = PushLog(epoch: epoch, retention: Retention())
    push("a", to: &log)
    let result = try log.first(.cursor(Cursor(epoch: Epoch(1), sequence: 99)))
    #expect(result.gap == Gap(missed: nil, reasons: [.restart]) && data(result) == [1])
    #expect(result.cursor.epoch == epoch)
  }

  @Test func refusesACursorAheadOfTheLog() {
    let log = PushLog(epoch: epoch, retention: Retention())
    #expect(throws: CursorAheadError.self) {
      try log.resolve(.cursor(Cursor(epoch: epoch, sequence: 1)), now: .zero)
    }
  }

  @Test func reportsAnUpstreamGapOnceToEachReaderAtItsPosition() {
    var log = PushLog(epoch: epoch, retention: Retention())
    push("a", to: &log)
    log.recordUpstreamGap()
    log.recordUpstreamGap()
    push("b", to: &log)
    let before = log.read(after: log.start)
    #expect(data(before) == [1] && before.gap == nil && before.more)
    let after = log.read(after: before.cursor)
    #expect(data(after) == [2] && after.gap == Gap(missed: nil, reasons: [.upstream]) && !after.more)
    #expect(!log.read(after: after.cursor).hasContent)
  }

  @Test func resolvesEarliestAndLatest() throws {
    var log = PushLog(epoch: epoch, retention: Retention())
    for index in 1...10 { push("\(index)", to: &log, time: UInt64(index) * 1000) }
    func start(_ start: StartingPoint, now: UInt64 = 0) throws -> UInt64 {
      try log.resolve(start, now: moment(now)).cursor.sequence
    }
    #expect(try start(.earliest) == 0)
    #expect(try start(.latest) == 10)
    #expect(try start(.last(0)) == 10)
    #expect(try start(.last(3)) == 7)
    #expect(try start(.last(99)) == 0)
    #expect(try start(.since(.seconds(2)), now: 10_000) == 7)
    #expect(try start(.since(.hours(1)), now: 10_000) == 0)
    #expect(try start(.since(.zero), now: 11_000) == 10)
  }

  @Test func keepsItsLimitsAfterAGapOfTheUpstream() {
    for retention in [Retention(bytes: 1000), Retention(age: .seconds(10))] {
      var log = PushLog(epoch: epoch, retention: retention)
      log.recordUpstreamGap()
      for index in 0..<20 {
        push(String(repeating: "x", count: 300), to: &log, time: UInt64(index) * 5_000)
        log.recordUpstreamGap()
      }
      #expect(log.retainedCount <= 3)
    }
  }

  @Test func countsNoGapAsAMessage() throws {
    var log = PushLog(epoch: epoch, retention: Retention(count: 3))
    for text in ["a", "b", "c"] {
      push(text, to: &log)
      log.recordUpstreamGap()
    }
    #expect(log.retainedCount == 3 && log.last.sequence == 3)
    #expect(try data(log.first(.last(3))) == [1] && log.first(.last(3)).gap == nil)
    #expect(try data(log.first(.last(2))) == [2] && log.first(.last(2)).gap == nil)
  }

  @Test func reportsBothRetentionAndTheUpstreamAsReasons() throws {
    var log = PushLog(epoch: epoch, retention: Retention(count: 2))
    let start = log.start
    for index in 0..<5_000 {
      push("\(index)", to: &log)
      if index % 2 == 0 { log.recordUpstreamGap() }
    }
    let all = log.read(after: start)
    #expect(all.gap == Gap(missed: 4_998, reasons: [.retention, .upstream]) && data(all) == [4_999])
    #expect(log.read(after: all.cursor).gap == Gap(missed: nil, reasons: [.upstream]))
    // The newest gap that was trimmed is after message 4,997.
    let late = log.read(after: Cursor(epoch: epoch, sequence: 4_997, isAfterGap: true))
    #expect(late.gap == Gap(missed: 1, reasons: [.retention]))
    #expect(log.read(after: Cursor(epoch: epoch, sequence: 4_997)).gap?.reasons == [.retention, .upstream])
    // The reader with a cursor of another epoch has missed all messages of this epoch, and an unknown number before it.
    let foreign = log.read(after: Cursor(epoch: Epoch(1), sequence: 0))
    #expect(foreign.gap == Gap(missed: nil, reasons: [.restart, .retention, .upstream]))
  }

  @Test func reportsThatMorePushesWereRequestedThanAreRetained() throws {
    var log = PushLog(epoch: epoch, retention: Retention(count: 3))
    for index in 1...3 { push("\(index)", to: &log, time: UInt64(index) * 1000) }
    #expect(try log.first(.earliest).gap == nil)
    #expect(try log.first(.last(99)).gap == nil)
    #expect(try log.first(.since(.hours(1)), now: 4_000).gap == nil)
    for index in 4...10 { push("\(index)", to: &log, time: UInt64(index) * 1000) }
    func gap(_ start: StartingPoint) throws -> Gap? {
      let result = try log.first(start, now: 10_000)
      #expect(data(result) == [8, 9, 10] || result.gap == nil)
      return result.gap
    }
    #expect(try gap(.earliest) == Gap(missed: 7, reasons: [.retention]))
    #expect(try gap(.last(5)) == Gap(missed: 2, reasons: [.retention]))
    #expect(try gap(.last(99)) == Gap(missed: 7, reasons: [.retention]))
    #expect(try gap(.last(3)) == nil)
    #expect(try gap(.since(.hours(1))) == Gap(missed: 7, reasons: [.retention]))
    #expect(try gap(.since(.seconds(5))) == Gap(missed: nil, reasons: [.retention]))
    #expect(try gap(.since(.seconds(2))) == nil)
    #expect(try log.first(.since(.zero), now: 11_000).gap == nil)
  }

  @Test func startsAtTheNextMessageWithAGapAfterAValidatorOfAnotherLog() throws {
    var log = PushLog(epoch: epoch, retention: Retention())
    push("a", to: &log)
    let ahead = Cursor(epoch: epoch, sequence: 2)
    for validator in [nil, ahead] {
      let start = try log.resolve(.validator(validator), now: moment(0))
      #expect(log.hasNewData(after: start))
      let result = log.read(after: start, limit: 9, maxBytes: 99)
      #expect(
        result.gap == Gap(missed: nil, reasons: [.restart]) && result.messages.isEmpty && result.cursor == log.last)
    }
    #expect(try data(log.first(.validator(log.start))) == [1])
  }

  /// While the log appends and trims messages, each message is either delivered to a reader or reported to it as
  /// missed.
  @Test(arguments: 1...20)
  func deliveredAndMissedMessagesAddUp(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    var log = PushLog(epoch: epoch, retention: Retention(count: Int.random(in: 1...40, using: &generator)))
    var cursor = log.start
    var accounted: UInt64 = 0
    var appended: UInt64 = 0
    var lastSeen: UInt64 = 0
    for _ in 0..<5_000 {
      switch UInt8.random(in: 0..<10, using: &generator) {
      case 0..<6:
        push("m", to: &log)
        appended += 1
      case 6:
        log.recordUpstreamGap()
      default:
        let result = log.read(after: cursor, limit: Int.random(in: 1...9, using: &generator), maxBytes: 1 << 20)
        for message in result.messages {
          #expect(message.sequence > lastSeen)
          lastSeen = message.sequence
        }
        accounted += UInt64(result.messages.count)
        if result.gap?.reasons.first == .retention { accounted += result.gap?.missed ?? 0 }
        cursor = result.cursor
      }
    }
    while log.hasNewData(after: ReadStart(cursor)) {
      let result = log.read(after: cursor, limit: 100, maxBytes: 1 << 20)
      accounted += UInt64(result.messages.count)
      if result.gap?.reasons.first == .retention { accounted += result.gap?.missed ?? 0 }
      cursor = result.cursor
    }
    #expect(accounted == appended)
  }
}

@Suite struct CursorTests {
  private func parse(_ text: String) -> StartingPoint? {
    StartingPoint(cursor: Array(text.utf8).span)
  }

  @Test func readsWhatItWrites() {
    for (text, isAfterGap) in [("p-0123456789ab.42", false), ("p-0123456789ab.42g", true)] {
      let cursor = Cursor(epoch: Epoch(0x0123_4567_89AB), sequence: 42, isAfterGap: isAfterGap)
      var output = ByteQueue()
      cursor.write(into: &output)
      #expect(parse(text) == .cursor(cursor))
      let written = output.bytes.text()
      #expect(written == text)
    }
  }

  @Test func readsWords() {
    #expect(parse("earliest") == .earliest)
    #expect(parse("latest") == .latest)
  }

  @Test(arguments: [
    "", "0", "x", "-", "-5", "since=10m", "p-0123456789ab.", "p-0123456789AB.1", "p-0123456789ab.-1", "since=",
    "since=x",
    "p-0123456789ab.99999999999999999999", "p-0123456789ab 1", "LATEST", "0123456789ab.1", "d-0123456789ab.1",
    "p-0123456789ab.g", "p-0123456789ab.1gg", "p-", "p-0123456789ab",
  ])
  func refusesEverythingElse(text: String) { #expect(parse(text) == nil) }
}
