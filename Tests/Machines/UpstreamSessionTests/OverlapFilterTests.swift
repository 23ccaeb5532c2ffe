import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

/// A filter for pushes that are numbers. Records the pushes that the filter has passed on.
struct FilterFixture {
  static let old = Generation(1)
  static let new = Generation(2)
  var filter: OverlapFilter
  var history = PushHistory()
  var passed: [UInt64] = []

  init(holds: Bool = true) { filter = OverlapFilter(older: Self.old, newer: Self.new, isDelayAllowed: holds) }

  /// Records a push from before the hand-over.
  mutating func passedBefore(_ number: UInt64) { history.record(number) }

  mutating func push(_ number: UInt64, from generation: Generation) {
    let payload = withUnsafeBytes(of: number) { Array($0) }
    var released: [OverlapFilter.Push] = []
    let passes = filter.received(number, payload.span, kind: .binary, from: generation, &history, &released)
    pass(released)
    if passes { passed.append(number) }
  }

  /// Reports a client message on the newer connection.
  mutating func write() {
    history.sent(1)
    filter.messageSent(Self.new)
  }

  mutating func pong(_ counter: UInt64, on generation: Generation) {
    var released: [OverlapFilter.Push] = []
    filter.pongReceived(generation, counter, &released)
    pass(released)
  }

  mutating func end(_ generation: Generation) {
    var released: [OverlapFilter.Push] = []
    filter.connectionEnded(generation, &released)
    pass(released)
  }

  mutating func stopDelaying() {
    var released: [OverlapFilter.Push] = []
    filter.stopDelaying(&released)
    pass(released)
  }

  private mutating func pass(_ released: [OverlapFilter.Push]) {
    for push in released {
      var number: UInt64 = 0
      for index in (0..<8).reversed() { number = number << 8 | UInt64(push.payload.bytes[index]) }
      passed.append(number)
    }
  }
}

@Suite struct OverlapFilterTests {
  /// Pushes by number: `o5` is push 5 on the older connection, `n5` on the newer. `o!` and `n!` are the end of a
  /// connection, `o?` and `n?` a ping on it, and `o.` and `n.` the pong. `w` is a client message on the newer
  /// connection, `s` the switch, `x` the end of the delays, and `h5` push 5 before the hand-over.
  private func passed(_ script: String, holds: Bool = true) -> String {
    var fixture = FilterFixture(holds: holds)
    var counter: UInt64 = 0
    for word in script.split(separator: " ") {
      let generation = word.first == "o" ? FilterFixture.old : FilterFixture.new
      switch word.dropFirst() {
      case "":
        word == "w" ? fixture.write() : word == "s" ? fixture.filter.newerStartedSending() : fixture.stopDelaying()
      case "!": fixture.end(generation)
      case "?":
        counter += 1
        fixture.filter.pingSent(generation, counter)
      case ".": fixture.pong(counter, on: generation)
      default:
        guard let number = UInt64(word.dropFirst()) else { continue }
        if word.first == "h" { fixture.passedBefore(number) } else { fixture.push(number, from: generation) }
      }
    }
    return fixture.passed.map(String.init).joined(separator: " ") + (fixture.filter.isOver ? " over" : "")
  }

  @Test(arguments: [
    ("o1 o2 n2 o3 n3 n4 o4", "1 2 3 4"),
    // No push of the newer connection passes before earlier pushes that the older connection has not delivered yet.
    ("o1 n3 n4 o2 o3 o4 n5 o5", "1 2 3 4 5"),
    // A push that only the newer connection delivered passes after a pong of the older connection, or when the older
    // connection delivers a later push.
    ("n90 o? n91 o.", "90"),
    ("n90 n1 o1 n91", "90 1"),
    ("n90 n1 o!", "90 1 over"),
    // The newer connection is behind when the older connection ends.
    ("o1 o2 o3 n1 o! n2 n9 n3 n4", "1 2 3 9 4 over"),
    // If the newer connection has not delivered a push before its pong, the push was for the older connection only.
    ("o1 n? o2 n. n1 n2", "1 2 1"),
    // From now on, no push can arrive twice.
    ("n1 n2 o1 o2 o!", "1 2 over"),
    ("o1 n1 n! o2 o2", "1 2 2 over"),
    ("n1 n! o0 o1 o2", "0 1 2 over"),
    // Without client messages, the filter counts equal pushes on each connection. As many pass as the larger count.
    ("o5 n5 o5 n5 o5 n5", "5 5 5"),
    ("n5 n5 o5 o5 o5", "5 5 5"),
    // With client messages on the newer connection, equal pushes that repeat an earlier push all pass, and new pushes
    // are paired.
    ("h5 h5 w o5 n5", "5 5"),
    ("h5 w n5 n5 o5 o?  o.", "5 5 5"),
    ("h5 h5 w o6 n5 n6 n7 n5 o5 o7 o? o.", "6 5 5 7 5"),
    ("h8 h9 w o1 n1 n2 o2", "1 2"),
    // If all pushes so far may be responses, two responses may be equal.
    ("w w o1 n1 n2 o2", "1 1 2 2"),
    ("h8 w w n1 o1 n1 o1", "1 1 1 1"),
    // A third equal push shows that the first two were distinct.
    ("h8 h9 w o5 n5 n5 o5 n5", "5 5 5 5 5"),
    ("h8 h9 w n5 o5 o5 o6 n6", "5 5 5 6"),
    // After the cut, the filter does not mistake a response on the newer connection for a push that the older
    // connection delivered before.
    ("o7 n? n. s w n7 o!", "7 7 over"),
    // The same applies if the pongs did not arrive.
    ("o7 s w n7 o!", "7 7 over"),
    // The filter passes these pushes on without a pong, and remembers them.
    ("n3 n4 x o2 o3 o4 n5 o5", "3 4 2 5"),
  ])
  func deliversOncePushesOfBothConnections(script: String, expected: String) {
    #expect(passed(script) == expected)
  }

  @Test func delaysNothingWithoutPongs() {
    #expect(passed("o1 n3 o2 o3 n4 o4", holds: false) == "1 3 2 4")
  }

  /// Pushes of a failed successor. The older connection may never deliver them, so a later equal push counts as a new
  /// push.
  @Test func withoutPongsThePushesOfAFailedSuccessorAreForgotten() {
    #expect(passed("n5 n! o5", holds: false) == "5 5 over")
  }

  /// The filter pairs pushes even if the upstream responds to none of many messages.
  @Test func pairsPushesAfterAMinimumNumberOfPushes() {
    let before = (100..<100 + PushHistory.minimumPushes).map { "h\($0)" }
    let writes = Array(repeating: "w", count: 1_000)
    #expect(passed((before + writes + ["o1 n1 n2 o2"]).joined(separator: " ")) == "1 2")
  }

  @Test func remembersNoMoreThanItsLimit() {
    var fixture = FilterFixture()
    for number in 0...UInt64(OverlapFilter.limit) { fixture.push(number, from: FilterFixture.old) }
    fixture.passed = []
    fixture.push(0, from: FilterFixture.new)
    fixture.push(1, from: FilterFixture.new)
    // The newer connection has already delivered a push that the older connection delivered later, so it will not
    // deliver push 0 again.
    #expect(fixture.passed == [0])
  }

  @Test func delaysNoMoreThanItsLimit() {
    var fixture = FilterFixture()
    let size = 1 << 20
    let payload = [UInt8](repeating: 7, count: size)
    var released: [OverlapFilter.Push] = []
    for number in 1...UInt64(OverlapFilter.delayedBytes / size) {
      _ = fixture.filter.received(
        number, payload.span, kind: .binary, from: FilterFixture.new, &fixture.history, &released)
    }
    #expect(released.count == OverlapFilter.delayedBytes / size)
    #expect(!fixture.filter.isDelaying)
  }

  @Test func digestsDistinguishTextFromBinary() {
    let bytes: [UInt8] = [1, 2, 3]
    #expect(
      OverlapFilter.digest(of: bytes.span, kind: .text) == OverlapFilter.digest(of: bytes.span, kind: .text))
    #expect(
      OverlapFilter.digest(of: bytes.span, kind: .text) != OverlapFilter.digest(of: bytes.span, kind: .binary))
  }

  @Test func aRepeatedPushIsRememberedAmongManyOthers() {
    var history = PushHistory()
    for number in 1...100_000 as ClosedRange<UInt64> {
      history.record(number &* 0x9E37_79B9_7F4A_7C15)
      if number % 100 == 0 { history.record(42) }
    }
    #expect(history.isRepeated(42))
    #expect(!history.isRepeated(100_000 &* 0x9E37_79B9_7F4A_7C15))
  }
}
