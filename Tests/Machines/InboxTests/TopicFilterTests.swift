import ByteStreams
import Events
import TestSupport
import Testing

@testable import Inbox

@Suite struct TopicFilterTests {
  let epoch = Epoch(0xABC)

  private func filter(_ patterns: String...) -> TopicFilter {
    var filter = TopicFilter()
    for pattern in patterns where !add(pattern, to: &filter) { Issue.record("\(pattern) is refused") }
    return filter
  }

  private func add(_ pattern: String, to filter: inout TopicFilter) -> Bool { filter.add(Array(pattern.utf8).span) }

  /// Whether a reader with a held request finds something new.
  private func finds(_ pattern: String, in log: PushLog, after start: inout ReadStart) -> Bool {
    log.hasNewData(after: &start, matching: filter(pattern))
  }

  private func matches(_ filter: TopicFilter, _ topic: String) -> Bool {
    var log = PushLog(epoch: epoch, retention: Retention())
    push("m", topic: topic, to: &log)
    return !log.read(after: ReadStart(log.start), limit: 1, maxBytes: 1, matching: filter).messages.isEmpty
  }

  @Test func matchesExactTopicsAndPrefixes() {
    #expect(matches(filter("orders"), "orders") && !matches(filter("orders"), "orders.eu"))
    #expect(matches(filter("orders*"), "orders") && matches(filter("orders.*"), "orders.eu"))
    #expect(!matches(filter("orders.*"), "orders") && !matches(filter("orders.*"), "order"))
    #expect(matches(filter("a", "b", "c*"), "b") && matches(filter("a", "b", "c*"), "cd"))
    #expect(matches(filter("*"), "any") && !matches(filter("*"), ""), "a push without a topic matches nothing")
    #expect(matches(filter("a*b"), "a*b") && !matches(filter("a*b"), "axb"), "only a final star is a wildcard")
  }

  @Test func comparesTopicsThatJSONEscapesByTheirCharacters() {
    #expect(matches(filter("a\"b"), "a\"b") && matches(filter("a\\*"), "a\\b") && matches(filter("a*"), "a\nb"))
    #expect(!matches(filter("a\\*"), "a\nb"), "the backslash of an escape is not part of the topic")
  }

  @Test func refusesInvalidTopicsAndTooManyTopics() {
    var many = TopicFilter()
    var results = [add("", to: &many), add(String(repeating: "a", count: PushTopic.maximumBytes + 1), to: &many)]
    #expect(results == [false, false])
    results = (0...TopicFilter.maximumPatterns).map { _ in add("a", to: &many) }
    #expect(results.filter { $0 }.count == TopicFilter.maximumPatterns && results.last == false)
  }

  @Test func writesItsPatternsAsAQuery() {
    var output = ByteQueue()
    var filter = filter("orders.*", "a b", "ü\"")
    let isAdded = filter.add(namespace: Array("/a b".utf8).span)
    filter.writeTopics(into: &output)
    filter.writeNamespaces(into: &output)
    let text = output.bytes.text()
    #expect(isAdded && text == "&topic=orders.*&topic=a%20b&topic=%C3%BC%22&namespace=%2Fa%20b")
  }

  @Test func anEmptySelectionNeverSelectsAllTopics() {
    let none = TopicFilter(granted: [])
    var namespaces = TopicFilter()
    let isAdded = namespaces.add(namespace: Array("/".utf8).span)
    #expect(isAdded)
    var log = PushLog(epoch: epoch, retention: Retention())
    var renderer = MessageRenderer()
    var dropped: [RetainedMessage] = []
    for name in ["a", "b"] {
      var parts = EventParts()
      (parts.namespace, parts.name, parts.arguments) = (Array("/".utf8), Array(name.utf8), Array("[]".utf8))
      let event = EventRecord(parts.record.span)
      log.append(renderer.render(event, id: log.nextID, time: 0, arrival: moment(0)), dropping: &dropped)
    }
    func count(_ filter: TopicFilter) -> Int {
      var (position, count) = (ReadStart(log.start), 0)
      while true {
        let result = log.read(after: position, limit: 9, maxBytes: 99, matching: filter)
        count += result.messages.count
        guard result.more else { return count }
        position = ReadStart(result.cursor)
      }
    }
    #expect(count(TopicFilter()) == 2, "a new filter selects all")
    #expect(count(none) == 0 && count(TopicFilter().within(none)) == 0)
    #expect(count(namespaces) == 2 && count(namespaces.within(none)) == 0)
    #expect(count(namespaces.within(TopicFilter(granted: [Array("a".utf8)]))) == 1)
  }

  // MARK: Reading with a filter

  @Test func theCursorPassesMessagesThatDoNotMatch() {
    var log = PushLog(epoch: epoch, retention: Retention())
    for topic in ["a", "b", "b", "a", "b"] { push("m", topic: topic, to: &log) }
    let first = log.read(after: ReadStart(log.start), limit: 1, maxBytes: 1 << 20, matching: filter("a"))
    #expect(data(first) == [1] && first.cursor.sequence == 3 && first.more)
    let second = log.read(after: ReadStart(first.cursor), limit: 9, maxBytes: 1 << 20, matching: filter("a"))
    #expect(data(second) == [4] && second.cursor == log.last && !second.more)
  }

  @Test func aHeldReaderExaminesEachMessageOnce() {
    var log = PushLog(epoch: epoch, retention: Retention())
    var start = ReadStart(log.start)
    for sequence in 1...100 {
      push("m", topic: "b", to: &log)
      let found = finds("a", in: log, after: &start)
      #expect(!found)
      #expect(start.cursor.sequence == UInt64(sequence))
    }
    push("m", topic: "a", to: &log)
    let found = finds("a", in: log, after: &start)
    #expect(found && start.cursor.sequence == 100)
  }

  @Test func aSearchEndsAtItsLimitAndSaysThatThereIsMore() {
    var log = PushLog(epoch: epoch, retention: Retention())
    let limit = PushLog.searchLimit
    for _ in 0..<limit + 1 { push("m", topic: "b", to: &log) }
    push("m", topic: "a", to: &log)
    var start = ReadStart(log.start)
    let found = finds("a", in: log, after: &start)
    #expect(found)
    let first = log.read(after: ReadStart(log.start), limit: 9, maxBytes: 99, matching: filter("a"))
    #expect(first.messages.isEmpty && first.more && first.gap == nil && first.cursor.sequence == UInt64(limit))
    #expect(
      data(log.read(after: ReadStart(first.cursor), limit: 9, maxBytes: 99, matching: filter("a"))) == [
        UInt64(limit) + 2
      ])
  }

  @Test func theLimitOfASearchCountsEveryPattern() {
    var log = PushLog(epoch: epoch, retention: Retention())
    let limit = PushLog.searchLimit / 16
    for _ in 0..<limit + 1 { push("m", topic: "b", to: &log) }
    var many = TopicFilter()
    for index in 0..<16 {
      let isAdded = many.add(Array("topic\(index)".utf8).span)
      #expect(isAdded)
    }
    let first = log.read(after: ReadStart(log.start), limit: 9, maxBytes: 99, matching: many)
    #expect(first.messages.isEmpty && first.more && first.cursor.sequence == UInt64(limit))
    var start = ReadStart(log.start)
    let found = log.hasNewData(after: &start, matching: many)
    #expect(found && start.cursor.sequence == UInt64(limit))
  }

  @Test func aGapIsReportedOnceAmongMessagesThatDoNotMatch() {
    var log = PushLog(epoch: epoch, retention: Retention(count: 5))
    var start = ReadStart(log.start)
    push("m", topic: "b", to: &log)
    log.recordUpstreamGap()
    push("m", topic: "b", to: &log)
    let found = finds("a", in: log, after: &start)
    #expect(found)
    let first = log.read(after: start, limit: 9, maxBytes: 99, matching: filter("a"))
    #expect(first.messages.isEmpty && first.gap == Gap(missed: nil, reasons: [.upstream]) && first.cursor == log.last)
    #expect(log.read(after: ReadStart(first.cursor), limit: 9, maxBytes: 99, matching: filter("a")).gap == nil)
    for _ in 0..<10 { push("m", topic: "b", to: &log) }
    start = ReadStart(first.cursor)
    let foundAgain = finds("a", in: log, after: &start)
    #expect(foundAgain)
    let trimmed = log.read(after: start, limit: 9, maxBytes: 99, matching: filter("a"))
    #expect(trimmed.gap == Gap(missed: 5, reasons: [.retention]), "it counts messages of all topics")
  }

  /// A reader with a filter gets every matching message, or the message counts as missed. The sizes of the reads do not
  /// matter.
  @Test(arguments: 1...20)
  func noMatchingMessageIsLost(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    var log = PushLog(epoch: epoch, retention: Retention())
    let filter = filter("a", "bc*")
    var start = ReadStart(log.start)
    var expected: [UInt64] = []
    var received: [UInt64] = []
    var gaps: [Cursor] = []
    func read(_ limit: Int) {
      let before = start.cursor.position
      guard log.hasNewData(after: &start, matching: filter) else { return }
      let result = log.read(after: start, limit: limit, maxBytes: 1 << 20, matching: filter)
      received += data(result)
      // Several gaps before the first message are reported as one gap.
      let crossed = gaps.contains { $0.position > before && $0.position <= result.cursor.position }
      #expect((result.gap != nil) == crossed)
      start = ReadStart(result.cursor)
    }
    for _ in 0..<1_000 {
      switch UInt8.random(in: 0..<8, using: &generator) {
      case 0...4:
        let topic = ["a", "b", "bc", "bcd", "", "ab"].randomElement(using: &generator) ?? ""
        push("m", topic: topic, to: &log)
        if topic == "a" || topic.hasPrefix("bc") { expected.append(log.last.sequence) }
      case 5:
        log.recordUpstreamGap()
        gaps.append(log.last)
      default: read(Int.random(in: 1...5, using: &generator))
      }
    }
    while start.cursor != log.last { read(9) }
    #expect(received == expected)
  }
}
