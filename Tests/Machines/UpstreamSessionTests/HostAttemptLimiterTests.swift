import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

@Suite struct HostAttemptLimiterTests {
  private let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

  private func dials(_ change: (inout AttemptLimits) -> Void = { _ in }) -> HostAttemptLimiter {
    var limits = AttemptLimits()
    change(&limits)
    return HostAttemptLimiter(limits)
  }

  private func slot(_ verdict: HostAttemptLimiter.Verdict) -> MonotonicTime? {
    if case .wait(let ticket) = verdict { ticket.slot } else { nil }
  }

  @Test func allowsABurstAndThenTheRate() {
    var dials = dials()
    for _ in 0..<40 {
      #expect(dials.admit("h", nil, now: start) == .go)
      dials.ended("h")
    }
    for place in 1...100 as ClosedRange<Int64> {
      let verdict = dials.admit("h", nil, now: start)
      #expect(slot(verdict) == start + .milliseconds(50 * place), "one slot each, in the order of the calls")
    }
    #expect(dials.admit("other", nil, now: start) == .go)
  }

  @Test func anOperatorNeedNotWaitForTheEndOfRetryAfter() {
    var dials = dials { $0.concurrent = 2 }
    let end = start + .hours(1)
    dials.pause("h", until: end)
    #expect(slot(dials.admit("h", nil, now: start)) == end)
    #expect(dials.admit("h", nil, overridesPause: true, now: start) == .go)
    #expect(dials.admit("h", nil, overridesPause: true, now: start + .milliseconds(999)) != .go, "once a second")
    #expect(dials.admit("h", nil, now: start + .seconds(1)) != .go, "the pause still applies to other attempts")
    #expect(dials.admit("h", nil, overridesPause: true, now: start + .seconds(1)) == .go)
    #expect(
      dials.admit("h", nil, overridesPause: true, now: start + .seconds(2)) != .go, "two attempts are in progress")
  }

  @Test func theBurstIsAvailableAgainAfterARest() {
    var dials = dials { $0.concurrent = 1_000 }
    for _ in 0..<40 { #expect(dials.admit("h", nil, now: start) == .go) }
    let later = start + .seconds(1)
    for _ in 0..<20 { #expect(dials.admit("h", nil, now: later) == .go) }
    #expect(dials.admit("h", nil, now: later) != .go)
    let muchLater = later + .minutes(1)
    for _ in 0..<40 { #expect(dials.admit("h", nil, now: muchLater) == .go) }
    #expect(dials.admit("h", nil, now: muchLater) != .go)
  }

  @Test func aTicketIsValidAtItsOwnTimeOnly() {
    var dials = dials {
      $0.burst = 1
      $0.perSecond = 1
    }
    #expect(dials.admit("h", nil, now: start) == .go)
    guard case .wait(let ticket) = dials.admit("h", nil, now: start) else { return }
    #expect(ticket.slot == start + .seconds(1))
    #expect(dials.admit("h", ticket, now: start + .milliseconds(999)) == .wait(ticket), "an early call costs nothing")
    #expect(slot(dials.admit("h", nil, now: start)) == start + .seconds(2))
    #expect(dials.admit("h", ticket, now: ticket.slot) == .go)
    let late = ticket.slot + HostAttemptLimiter.ticketLifetime + .nanoseconds(1)
    #expect(slot(dials.admit("h", ticket, now: late)) == start + .seconds(3), "a stale ticket is not valid")
    var other = HostAttemptLimiter(AttemptLimits())
    #expect(other.admit("elsewhere", ticket, now: start) == .go, "a ticket is not valid for another host")
  }

  /// Sessions that are created and deleted while they wait.
  @Test func returnedTicketsDelayNoSession() {
    var dials = dials {
      $0.burst = 1
      $0.perSecond = 1
    }
    #expect(dials.admit("h", nil, now: start) == .go)
    for _ in 0..<10_000 {
      guard case .wait(let ticket) = dials.admit("h", nil, now: start) else { return }
      dials.giveBack(ticket, now: start)
    }
    #expect(slot(dials.admit("h", nil, now: start)) == start + .seconds(1))
  }

  @Test func aReturnedSlotIsUsedByTheNextAttempt() throws {
    var dials = dials {
      $0.burst = 1
      $0.perSecond = 1
    }
    #expect(dials.admit("h", nil, now: start) == .go)
    let tickets = (1...5).compactMap { _ in
      if case .wait(let ticket) = dials.admit("h", nil, now: start) { ticket } else { nil }
    }
    for ticket in [tickets[3], tickets[1]] { dials.giveBack(ticket, now: start) }
    #expect(slot(dials.admit("h", nil, now: start)) == start + .seconds(2))
    #expect(slot(dials.admit("h", nil, now: start)) == start + .seconds(4))
    #expect(slot(dials.admit("h", nil, now: start)) == start + .seconds(6))
    dials.giveBack(tickets[2], now: start + .seconds(4))
    #expect(
      slot(dials.admit("h", nil, now: start + .seconds(4))) == start + .seconds(7), "the slot of the ticket had passed")
    dials.giveBack(tickets[4], now: start + .seconds(4))
    dials.pause("h", until: start + .minutes(1))
    #expect(slot(dials.admit("h", nil, now: start + .seconds(4))) == start + .minutes(1), "a pause voids the slot")
  }

  @Test func limitsTheConcurrentAttempts() {
    var dials = dials { $0.burst = 1_000 }
    for _ in 0..<64 { #expect(dials.admit("h", nil, now: start) == .go) }
    let verdict = dials.admit("h", nil, now: start)
    #expect((slot(verdict) ?? start) > start, "the time is in the future, so the caller does not try again at once")
    dials.ended("h")
    guard case .wait(let ticket) = verdict else { return }
    #expect(dials.admit("h", ticket, now: ticket.slot) == .go)
    for _ in 0..<200 { dials.ended("h") }
    for _ in 0..<64 { #expect(dials.admit("h", nil, now: start + .hours(1)) == .go) }
    #expect(dials.admit("h", nil, now: start + .hours(1)) != .go, "ends without an attempt permit no further attempts")
  }

  @Test func retryAfterVoidsTicketsAndIsFollowedByTheRateWithoutABurst() {
    var dials = dials()
    for _ in 0..<40 { _ = dials.admit("h", nil, now: start) }
    guard case .wait(let ticket) = dials.admit("h", nil, now: start) else { return }
    let end = start + .seconds(120)
    dials.pause("h", until: end)
    dials.pause("h", until: start + .seconds(5))
    #expect(slot(dials.admit("h", ticket, now: ticket.slot)) == end, "a shorter pause does not end a longer pause")
    for place in 1..<50 as Range<Int64> {
      #expect(slot(dials.admit("h", nil, now: start + .seconds(1))) == end + .milliseconds(50 * place))
    }
    #expect(dials.admit("other", nil, now: start) == .go)
  }

  @Test func remembersALimitedNumberOfHosts() {
    var dials = dials()
    dials.pause("held", until: start + .hours(1))
    for number in 0..<20_000 { _ = dials.admit("host \(number)", nil, now: start) }
    #expect(dials.count <= HostAttemptLimiter.hostLimit)
    #expect(dials.admit("held", nil, now: start) != .go)
    for number in 0..<20_000 { dials.ended("host \(number)") }
    #expect(dials.count <= HostAttemptLimiter.hostLimit)
  }

  /// Sessions begin, end and leave tickets unused at random. No interval has more attempts than allowed.
  @Test(arguments: [UInt64](1...5))
  func keepsTheRateOverAnyInterval(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var dials = dials()
    var tickets = [HostAttemptLimiter.Ticket?](repeating: nil, count: 500)
    var inProgress = 0
    var dialled: [MonotonicTime] = []
    var now = start
    for _ in 0..<60_000 {
      now = now + .microseconds(Int64.random(in: 0...2_000, using: &random))
      if inProgress > 0, Int.random(in: 0..<3, using: &random) == 0 {
        inProgress -= 1
        dials.ended("h")
      }
      let session = Int.random(in: tickets.indices, using: &random)
      if Int.random(in: 0..<4, using: &random) == 0, let ticket = tickets[session] {
        tickets[session] = nil
        dials.giveBack(ticket, now: now)
      }
      switch dials.admit("h", tickets[session], now: now) {
      case .go:
        tickets[session] = nil
        inProgress += 1
        #expect(inProgress <= 64)
        dialled.append(now)
      case .wait(let ticket):
        tickets[session] = ticket
      }
    }
    #expect(dialled.count > 500, "the limiter was busy")
    // A session may use its ticket a second late, together with the tickets of that second.
    let most = 40 + 20
    for (first, begin) in dialled.enumerated() {
      for span in [1, 10, 30] as [Int64] {
        let end = begin + .seconds(span)
        let count = (dialled[first...].firstIndex { $0 > end } ?? dialled.count) - first
        #expect(count <= most + 20 * Int(span))
      }
    }
  }
}
