import ByteStreams
import Consumers
import HTTPCodec
import TestSupport
import Testing

@testable import Webhooks

/// A webhook with a virtual clock.
@Suite struct WebhookMachineTests {
  private struct Fixture {
    var machine: WebhookMachine
    var now = MonotonicTime(nanoseconds: 1_000_000_000)
    let start: MonotonicTime
    var generator: any RandomNumberGenerator = SeededGenerator(seed: 7)
    var attempt: UInt32 = 0

    init(_ change: (inout WebhookSettings) -> Void = { _ in }) throws {
      var settings = WebhookSettings(name: "a", url: try HTTPURL("https://example.org/"))
      change(&settings)
      machine = WebhookMachine(settings)
      start = now
    }

    /// Makes an attempt as soon as possible, with this outcome. Returns the verdict.
    mutating func attempt(_ outcome: WebhookOutcome) -> WebhookVerdict {
      if now < machine.pausedUntil { now = machine.pausedUntil }
      attempt += 1
      machine.begin()
      return end(outcome, attempt)
    }

    mutating func end(_ outcome: WebhookOutcome, _ attempt: UInt32, isCurrent: Bool = true) -> WebhookVerdict {
      let ended = machine.end(
        outcome, of: Lease(number: 1, attempt: attempt, bits: 0), age: now - start, isCurrent: isCurrent, now: now,
        using: &generator)
      if case .release(let delay) = ended.settlement { now = now + delay }
      return ended
    }
  }

  private static func delay(_ settlement: Settlement) -> TimeSpan? {
    if case .release(let delay) = settlement { delay } else { nil }
  }

  @Test func repeatsAPushOnScheduleUntilItIsDead() throws {
    var fixture = try Fixture()
    var total = TimeSpan.zero
    for time in [TimeSpan.seconds(5), .minutes(5), .minutes(30), .hours(2), .hours(5), .hours(10)] {
      let delay = try #require(Self.delay(fixture.attempt(.response(status: 500)).settlement))
      #expect(delay >= time * 4 / 5 && delay <= time * 6 / 5, "\(delay.text) for \(time.text)")
      total = total + delay
    }
    #expect(fixture.attempt(.response(status: 500)).settlement == .reject)
    #expect(total > .hours(14) && total < .hours(22))
  }

  @Test func theDelaysOfSeveralPushesDiffer() throws {
    var fixture = try Fixture()
    var delays: Set<TimeSpan> = []
    for _ in 0..<20 {
      fixture.attempt = 0
      delays.insert(try #require(Self.delay(fixture.attempt(.timeout("no connection within 10s")).settlement)))
    }
    #expect(delays.count == 20)
  }

  @Test(arguments: [
    (WebhookOutcome.response(status: 200), WebhookResult.delivered, nil as Int?),
    (.response(status: 204, retryAfter: .seconds(9)), .delivered, nil),
    (.response(status: 299), .delivered, nil),
    (.response(status: 301), .redirected, 301),
    (.response(status: 399), .redirected, 399),
    (.response(status: 400), .refused, 400),
    (.response(status: 500), .refused, 500),
    (.response(status: 101), .refused, 101),
    (.response(status: 410), .gone, 410),
    (.timeout("no connection within 10s"), .timeout, nil),
    (.failed("x"), .failed, nil),
  ])
  func onlyAStatusOf2xxIsSuccess(outcome: WebhookOutcome, result: WebhookResult, status: Int?) throws {
    var fixture = try Fixture()
    let ended = fixture.attempt(outcome)
    #expect(ended.result == result)
    #expect((ended.settlement == .acknowledge) == (result == .delivered))
    #expect(fixture.machine.lastFailure?.status == status)
    #expect((fixture.machine.lastFailure == nil) == (result == .delivered))
    #expect(fixture.machine.inProgress == 0)
  }

  @Test(arguments: [
    (TimeSpan.zero, TimeSpan.seconds(1)), (.seconds(1), .seconds(1)), (.seconds(90), .seconds(90)),
    (.hours(1), .hours(1)), (.hours(9_000), .hours(1)),
  ])
  func retryAfterReplacesTheScheduleForAllPushes(retryAfter: TimeSpan, expected: TimeSpan) throws {
    for status in [429, 503] {
      var fixture = try Fixture { $0.concurrency = 2 }
      let before = fixture.now
      let ended = fixture.attempt(.response(status: status, retryAfter: retryAfter))
      #expect(ended.settlement == .release(expected))
      #expect(fixture.machine.pausedUntil == before + expected)
      #expect(fixture.machine.room(at: before + expected - .milliseconds(1)) == 0)
      #expect(fixture.machine.room(at: before + expected) == 2)
    }
  }

  @Test func postponedAttemptsDoNotCountForTheSchedule() throws {
    var fixture = try Fixture { $0.retries = [.seconds(5)] }
    for _ in 0..<20 {
      #expect(fixture.attempt(.response(status: 429, retryAfter: .seconds(2))).settlement == .release(.seconds(2)))
    }
    #expect(fixture.attempt(.response(status: 410)).settlement == .release(.zero))
    fixture.machine.reload(fixture.machine.settings, isNewEndpoint: false)
    #expect(Self.delay(fixture.attempt(.response(status: 500)).settlement) != nil)
    #expect(fixture.attempt(.response(status: 500)).settlement == .reject)
  }

  @Test func postponedAttemptsContinueUntilAPushIsDead() throws {
    var fixture = try Fixture()
    while fixture.attempt(.response(status: 429, retryAfter: .zero)).settlement != .reject {}
    #expect(fixture.now - fixture.start > .hours(20) && fixture.attempt < ConsumerSettings.deliveries.upperBound)
  }

  @Test func aReloadEndsNoPauseOfTheSameReceiver() throws {
    var fixture = try Fixture()
    fixture.machine.begin()
    let now = fixture.now
    _ = fixture.end(.response(status: 503, retryAfter: .minutes(10)), 1)
    fixture.machine.reload(fixture.machine.settings, isNewEndpoint: false)
    #expect(fixture.machine.pausedUntil == now + .minutes(10))
    fixture.machine.reload(fixture.machine.settings, isNewEndpoint: true)
    #expect(fixture.machine.pausedUntil == .zero)
  }

  @Test(arguments: [
    WebhookOutcome.response(status: 410), .response(status: 503, retryAfter: .hours(1)), .failed("x"),
  ])
  func anAttemptAtAnEarlierReceiverDoesNotPauseTheNewReceiver(outcome: WebhookOutcome) throws {
    var fixture = try Fixture { $0.concurrency = 2 }
    fixture.machine.begin()
    let ended = fixture.end(outcome, 1, isCurrent: false)
    #expect(Self.delay(ended.settlement) != nil && ended.failure != nil)
    #expect(fixture.machine.room(at: fixture.now) == 2 && fixture.machine.lastFailure == nil)
  }

  @Test func aPushIsDeadWhenTheNextAttemptWouldBeTooLate() throws {
    var fixture = try Fixture { $0.giveUpAfter = .minutes(10) }
    #expect(Self.delay(fixture.attempt(.failed("")).settlement) != nil)
    #expect(Self.delay(fixture.attempt(.failed("")).settlement) != nil)
    #expect(fixture.attempt(.failed("")).settlement == .reject)
    #expect(fixture.now - fixture.start < .minutes(10))
  }

  @Test func aPushThatWaitedTooLongIsAttemptedTwice() throws {
    var fixture = try Fixture()
    fixture.now = fixture.start + .hours(48)
    #expect(Self.delay(fixture.attempt(.response(status: 500)).settlement) != nil)
    #expect(fixture.attempt(.response(status: 500)).settlement == .reject)
    #expect(fixture.attempt(.response(status: 200)).settlement == .acknowledge)
  }

  @Test func status410DisablesTheWebhookUntilAReload() throws {
    var fixture = try Fixture()
    #expect(fixture.attempt(.response(status: 410)).settlement == .release(.zero))
    #expect(fixture.machine.isDisabled && fixture.machine.room(at: .distantFuture) == 0)
    fixture.machine.reload(fixture.machine.settings, isNewEndpoint: false)
    #expect(!fixture.machine.isDisabled && fixture.machine.room(at: fixture.now) == 1)
  }

  @Test func limitsTheAttemptsInProgress() throws {
    var fixture = try Fixture { $0.concurrency = 3 }
    for expected in [3, 2, 1, 0] {
      #expect(fixture.machine.room(at: fixture.now) == expected)
      fixture.machine.begin()
    }
    fixture.machine.abandon()
    #expect(fixture.machine.room(at: fixture.now) == 0)
    fixture.machine.abandon()
    #expect(fixture.machine.room(at: fixture.now) == 1)
  }

  @Test func slowsDownOnlyWhileEveryAttemptFails() throws {
    var fixture = try Fixture { $0.concurrency = 8 }
    var pauses: [TimeSpan] = []
    for _ in 0..<12 {
      fixture.now = max(fixture.now, fixture.machine.pausedUntil)
      fixture.machine.begin()
      let now = fixture.now
      _ = fixture.end(.failed("refused"), 1)
      pauses.append(fixture.machine.pausedUntil - now)
      fixture.now = now
    }
    #expect(
      Array(pauses.prefix(4)) == [.milliseconds(100), .milliseconds(200), .milliseconds(400), .milliseconds(800)])
    #expect(pauses.last == .seconds(30))
    fixture.now = fixture.machine.pausedUntil
    _ = fixture.attempt(.response(status: 200))
    let now = fixture.now
    _ = fixture.attempt(.failed("refused"))
    #expect(fixture.machine.pausedUntil - now == .milliseconds(100))
  }

  @Test func attemptsThatFailTogetherCountOnce() throws {
    var fixture = try Fixture { $0.concurrency = 8 }
    for _ in 0..<8 { fixture.machine.begin() }
    let now = fixture.now
    for _ in 0..<8 {
      fixture.now = now
      _ = fixture.end(.failed("refused"), 1)
    }
    #expect(fixture.machine.pausedUntil - now == .milliseconds(100))
  }

  @Test func concurrency1KeepsAllPushesInOrder() throws {
    var settings = WebhookSettings(name: "a", url: try HTTPURL("https://example.org/"))
    settings.order = .topic
    #expect(settings.consumer.order == .all && settings.consumer.isWorkSharing)
    settings.concurrency = 2
    #expect(settings.consumer.order == .topic)
    #expect(settings.consumer.visibility > settings.timeout, "a lease outlasts its attempt")
    #expect(ConsumerSettings.visibilities.contains(settings.consumer.visibility))
  }

  @Test func theLongestDelayWithJitterIsAValidDelay() {
    #expect(WebhookSettings.retryTimes.upperBound * 12 / 10 <= ConsumerSettings.delays.upperBound)
  }
}
