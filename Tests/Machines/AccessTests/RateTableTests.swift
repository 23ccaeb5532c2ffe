import ByteStreams
import TestSupport
import Testing

@testable import Access

/// Limits per client: exact over time, and with limited memory.
@Suite struct RateTableTests {
  private func table(_ change: (inout RateTable.Limits) -> Void) -> RateTable {
    var limits = RateTable.Limits()
    change(&limits)
    return RateTable(limits)
  }

  private let alice = RateTable.Key("alice")
  private let bob = RateTable.Key("bob")
  private func time(_ span: TimeSpan) -> MonotonicTime { MonotonicTime.zero + .seconds(1_000) + span }

  private func isAdmitted(_ verdict: RateTable.Verdict) -> Bool {
    if case .admitted = verdict { true } else { false }
  }

  // MARK: Rates

  @Test func aClientHasABurstAndThenTheRate() {
    var table = table { $0.requests = RateLimit(10, per: .seconds(1), burst: 3) }
    for _ in 0..<3 { #expect(isAdmitted(table.use(.requests, by: alice, at: time(.zero)))) }
    #expect(table.use(.requests, by: alice, at: time(.zero)) == .refused(wait: .milliseconds(100)))
    #expect(isAdmitted(table.use(.requests, by: bob, at: time(.zero))))
    #expect(
      table.use(.requests, by: alice, at: time(.milliseconds(99))) == .refused(wait: .milliseconds(1)))
    #expect(isAdmitted(table.use(.requests, by: alice, at: time(.milliseconds(100)))))
  }

  @Test func severalUsesAreCountedAsAWholeOrNotAtAll() {
    var table = table { $0.messages = RateLimit(10, per: .seconds(1), burst: 5) }
    #expect(isAdmitted(table.use(.messages, 3, by: alice, at: time(.zero))))
    #expect(table.use(.messages, 3, by: alice, at: time(.zero)) == .refused(wait: .milliseconds(100)))
    #expect(isAdmitted(table.use(.messages, 2, by: alice, at: time(.zero))))
    #expect(table.use(.messages, 6, by: alice, at: time(.seconds(10))) == .impossible)
    #expect(isAdmitted(table.use(.messages, 5, by: alice, at: time(.seconds(10)))))
  }

  @Test func aClientThatWaitsForTheReportedTimeIsAdmitted() {
    var generator = SeededGenerator(seed: 7)
    for _ in 0..<300 {
      let limit = RateLimit(
        .random(in: 1...5_000, using: &generator), per: Bool.random(using: &generator) ? .seconds(1) : .minutes(1),
        burst: .random(in: 1...50, using: &generator))
      var table = table { $0.messages = limit }
      var now = time(.zero)
      for _ in 0..<100 {
        let uses = Int.random(in: 1...limit.burst, using: &generator)
        if case .refused(let wait) = table.use(.messages, uses, by: alice, at: now) {
          #expect(wait > .zero)
          #expect(table.wait(for: .messages, uses, by: alice, at: now) == wait)
          #expect(!isAdmitted(table.use(.messages, uses, by: alice, at: now + (wait - .nanoseconds(1)))))
          now = now + wait
          #expect(isAdmitted(table.use(.messages, uses, by: alice, at: now)))
        }
        now = now + .nanoseconds(.random(in: 0...limit.recovery.nanoseconds / 4, using: &generator))
      }
    }
  }

  /// The limit applies to every interval between two admissions, not only to intervals from the start.
  @Test func noIntervalHasMoreThanTheBurstAndTheRate() {
    var generator = SeededGenerator(seed: 11)
    for _ in 0..<40 {
      let limit = RateLimit(
        .random(in: 1...2_000, using: &generator), per: .seconds(1), burst: .random(in: 1...40, using: &generator))
      var table = table { $0.requests = limit }
      var now = time(.zero)
      var latest = MonotonicTime.zero
      var admitted: [MonotonicTime] = []
      for _ in 0..<400 {
        // Several threads measure time, so their times are not exactly in order.
        let step = Int64.random(in: -200_000...(limit.recovery.nanoseconds / Int64(limit.burst)), using: &generator)
        now = now + .nanoseconds(step)
        latest = max(latest, now)
        if isAdmitted(table.use(.requests, by: alice, at: now)) { admitted.append(latest) }
      }
      for first in admitted.indices {
        for last in admitted.indices[first...] {
          let span = admitted[last] - admitted[first]
          let allowed = Double(limit.burst) + span.seconds * Double(limit.count)
          #expect(Double(last - first + 1) <= allowed + 1e-6)
        }
      }
    }
  }

  @Test func aClientThatFollowsTheReportedWaitsGetsTheWholeRate() {
    for (count, burst) in [(3, 1), (7, 20), (333, 10), (30_000, 1)] {
      var table = table { $0.requests = RateLimit(count, per: .seconds(1), burst: burst) }
      var now = time(.zero)
      var admitted = 0
      while now < time(.seconds(10)) {
        switch table.use(.requests, by: alice, at: now) {
        case .refused(let wait): now = now + wait
        default: admitted += 1
        }
      }
      // The spacing is a whole number of nanoseconds.
      #expect(Double(admitted) >= Double(10 * count + burst) * 0.9995 - 1)
      #expect(admitted <= 10 * count + burst)
    }
  }

  @Test func aUseThatAnotherLimitRefusesIsNotCounted() {
    var table = table { $0.requests = RateLimit(1, per: .seconds(1), burst: 2) }
    let now = time(.zero)
    #expect(table.use(.requests, 2, by: alice, at: now) == .admitted(inCommon: false))
    table.refund(.requests, 2, by: alice, inCommon: false, at: now)
    #expect(table.use(.requests, 2, by: alice, at: now) == .admitted(inCommon: false))
    table.refund(.requests, 1, by: alice, inCommon: false, at: now)
    #expect(isAdmitted(table.use(.requests, by: alice, at: now)))
    #expect(!isAdmitted(table.use(.requests, by: alice, at: now)))
  }

  @Test func theStandingHasTheRemainderAndTheTimeUntilMore() {
    var table = table { $0.requests = RateLimit(10, per: .seconds(1), burst: 10) }
    #expect(table.standing(.requests, of: alice, at: time(.zero)) == RateTable.Standing(remaining: 10, next: .zero))
    _ = table.use(.requests, 7, by: alice, at: time(.zero))
    #expect(
      table.standing(.requests, of: alice, at: time(.milliseconds(30)))
        == RateTable.Standing(remaining: 3, next: .milliseconds(70)))
    _ = table.use(.requests, 3, by: alice, at: time(.milliseconds(30)))
    #expect(
      table.standing(.requests, of: alice, at: time(.milliseconds(30)))
        == RateTable.Standing(remaining: 0, next: .milliseconds(70)))
    #expect(table.standing(.messages, of: alice, at: time(.zero)) == nil)
  }

  @Test func theRatesOfAClientAreIndependent() {
    var table = table {
      $0.requests = RateLimit(1, per: .hours(1))
      $0.failures = RateLimit(1, per: .hours(1))
    }
    let now = time(.zero)
    #expect(isAdmitted(table.use(.requests, by: alice, at: now)))
    #expect(isAdmitted(table.use(.failures, by: alice, at: now)))
    #expect(!isAdmitted(table.use(.failures, by: alice, at: now)))
    #expect(isAdmitted(table.use(.messages, 1_000, by: alice, at: now)))
  }

  // MARK: Held requests

  @Test func theEndOfAHeldRequestAllowsAnother() {
    var table = table { $0.held = 2 }
    let now = time(.zero)
    for _ in 0..<1_000 {
      guard let first = table.hold(by: alice, at: now), let second = table.hold(by: alice, at: now) else {
        Issue.record("a released place is not free")
        return
      }
      #expect(table.hold(by: alice, at: now) == nil)
      table.release(first)
      table.release(second)
    }
    #expect(table.heldCount(of: alice, at: now) == 0)
  }

  @Test func aHeldRequestIsCountedWhileOtherClientsArrive() {
    var table = table { $0.held = 1 }
    guard let hold = table.hold(by: alice, at: time(.zero)) else {
      Issue.record("not held")
      return
    }
    for number in 0..<10_000 {
      let other = RateTable.Key(number)
      let now = time(.milliseconds(Int64(number) * 200))
      if let hold = table.hold(by: other, at: now) { table.release(hold) }
    }
    #expect(table.hold(by: alice, at: time(.hours(1))) == nil)
    table.release(hold)
    #expect(table.hold(by: alice, at: time(.hours(1))) != nil)
  }

  // MARK: Memory

  @Test func memoryIsLimitedAndReleasedAfterTheLastRequest() {
    var table = table { $0.requests = RateLimit(1, per: .seconds(1)) }
    for number in 0..<100_000 { _ = table.use(.requests, by: RateTable.Key(number), at: time(.zero)) }
    #expect(table.count == RateTable.maximumKeys)
    #expect(table.allocatedBytes <= 2_048 * 48)
    _ = table.use(.requests, by: alice, at: time(.seconds(10)))
    #expect(table.count == 1)
    #expect(table.allocatedBytes < 2_000)
  }

  @Test func whenAllEntriesAreUsedNewClientsUseCommonEntries() {
    var table = table {
      $0.requests = RateLimit(1, per: .hours(1), burst: 2)
      $0.held = 1
    }
    let now = time(.zero)
    for number in 0..<RateTable.maximumKeys { _ = table.use(.requests, by: RateTable.Key(number), at: now) }
    #expect(table.use(.requests, by: alice, at: now) == .admitted(inCommon: true))
    #expect(table.use(.requests, by: bob, at: now) == .admitted(inCommon: true))
    #expect(!isAdmitted(table.use(.requests, by: bob, at: now)))
    let hold = table.hold(by: alice, at: now)
    #expect(table.hold(by: bob, at: now) == nil)
    for number in 0..<RateTable.maximumKeys {
      #expect(table.use(.requests, by: RateTable.Key(number), at: now) == .admitted(inCommon: false))
      #expect(!isAdmitted(table.use(.requests, by: RateTable.Key(number), at: now)))
    }
    // Later, the new client has an entry of its own. Its earlier held request still counts in the common entry.
    let later = time(.hours(3))
    #expect(table.use(.requests, 2, by: alice, at: later) == .admitted(inCommon: false))
    if let hold { table.release(hold) }
    #expect(table.heldCount(of: alice, at: later) == 0)
  }

  @Test func anEntryIsReusedOnlyWhenItsLimitsAreFullAgain() {
    var table = table { $0.requests = RateLimit(1, per: .seconds(1)) }
    for number in 0..<1_000 { #expect(isAdmitted(table.use(.requests, by: RateTable.Key(number), at: time(.zero)))) }
    // New keys make the table search for unused entries, while each of these keys is in use for another millisecond.
    let later = time(.milliseconds(999))
    for number in 1_000..<1_500 { #expect(isAdmitted(table.use(.requests, by: RateTable.Key(number), at: later))) }
    for number in 0..<1_000 { #expect(!isAdmitted(table.use(.requests, by: RateTable.Key(number), at: later))) }
  }

  // MARK: Text

  @Test(arguments: ["100/s", "1/h", "600/m burst 10", "1000000/s burst 10"])
  func aLimitIsReadAsItIsWritten(text: String) { #expect(RateLimit(text)?.text == text) }

  @Test(arguments: [
    "", "100", "0/s", "1000001/s", "-1/s", "+1/s", "1/d", "1/S", "1 /s", "1/s ", "1/s burst", "1/s burst 0",
    "1/s burst 1 2", "1/s  burst 2", "1/s burst +2", "1/1s", "99999999999999999999/s", "١/s",
  ])
  func otherTextIsNotALimit(text: String) { #expect(RateLimit(text) == nil) }
}
