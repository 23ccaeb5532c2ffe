import ByteStreams
import JournalCoding
import Testing
import UpstreamSession

@testable import Outbox

/// The reason and the time of a message's final state.
@Suite struct DeliveryReasonTests {
  private func reason(_ box: OutboxFixture, _ sequence: UInt64 = 1) -> DeliveryReason? {
    box.outbox.ledger.record(of: sequence, now: box.now)?.reason
  }

  /// Restores message 1, which an earlier process had queued.
  private func restore(into box: inout OutboxFixture, mayHaveArrived: Bool) {
    var stored = StoredOutbox()
    let message = StoredMessage(
      number: 1, payload: ByteString([0x61]), kind: .text, topic: nil, deadline: nil, time: 0)
    for change in [.accepted(message), .intended(through: mayHaveArrived ? 1 : 0)] as [OutboxChange] {
      _ = stored.apply(change)
    }
    box.outbox.startStoring(stored, at: JournalClock(now: box.now, wallClock: 0))
  }

  /// Returns an outbox in which message 1 ended for this reason. The switch has no default, so that a new reason must
  /// be added here.
  private func example(of reason: DeliveryReason) -> OutboxFixture {
    var box = OutboxFixture {
      if reason == .queueFull {
        $0.maximumMessages = 1
        $0.overflow = .dropOldest
      }
      if reason == .connectionLost { $0.maximumAttempts = 1 }
    }
    switch reason {
    case .ttl:
      box.post("a", ttl: .seconds(1))
      box.outbox.expire(now: box.now + .seconds(2))
    case .notSentAtOnce:
      box.outbox.startSending(on: Generation(1))
      box.post("a", ttl: .zero)
      box.outbox.block(returning: nil)
    case .queueFull:
      box.post("a")
      box.post("b")
    case .sessionClosed:
      box.post("a")
      box.outbox.close()
    case .connectionLost:
      box.outbox.startSending(on: Generation(1))
      box.post("a")
      _ = box.take()
      box.outbox.stopSending(partiallyWritten: 1)
      box.outbox.settle(partiallyWritten: 1)
    case .tooLarge:
      box.outbox.startSending(on: Generation(1))
      box.write(1)
      box.outbox.stopSending(closedAsTooBig: true)
    case .notConnected:
      box.outbox.startSending(on: Generation(1))
      box.post("a")
      _ = box.take()
      box.outbox.reject(1, because: .notConnected)
    case .gatewayRestart:
      restore(into: &box, mayHaveArrived: true)
    case .storeFailed:
      box.outbox.startStoring(StoredOutbox(), at: JournalClock(now: box.now, wallClock: 0))
      box.post("a")
      box.outbox.reject(from: 1, count: 1)
    }
    return box
  }

  @Test(arguments: DeliveryReason.allCases)
  func everyReasonIsGivenForItsCause(expected: DeliveryReason) {
    let box = example(of: expected)
    #expect(reason(box) == expected)
    let state = box.outbox.ledger.state(of: 1)
    #expect(state == .expired || state == .rejected || expected == .gatewayRestart && state == .unknown)
  }

  @Test func aWrittenMessageReportsTheLossOfItsConnection() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    box.write(1)
    #expect(reason(box) == nil)
    box.outbox.stopSending()
    box.outbox.settle()
    #expect(box.outbox.ledger.state(of: 1) == .unknown && reason(box) == .connectionLost)
  }

  /// The message expires when a timer fires, or when the successor would take it.
  @Test(arguments: [false, true]) func aMessageWithTTLZeroThatWaitsForAHandOverWasNotSentAtOnce(isTaken: Bool) {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    box.post("a", ttl: .zero)
    box.outbox.pause(now: box.now)
    box.now = box.now + .seconds(1)
    if isTaken {
      box.outbox.resume()
      #expect(box.take() == [])
    } else {
      box.outbox.expire(now: box.now)
    }
    #expect(box.outbox.ledger.state(of: 1) == .expired && reason(box) == .notSentAtOnce)
  }

  @Test func aMessageThatArrivedOrWasReplacedHasNoReason() {
    var box = OutboxFixture()
    box.post("a", topic: "t")
    box.post("b", topic: "t")
    #expect(box.outbox.ledger.state(of: 1) == .replaced && reason(box) == nil)
    #expect(reason(box, 2) == nil)
  }

  @Test func theTimeIsTheTimeOfTheLastChange() {
    var box = OutboxFixture()
    box.outbox.startSending(on: Generation(1))
    let start = MonotonicTime.zero + .hours(24 * 400)
    box.outbox.clock = start
    box.post("a")
    func time(at now: MonotonicTime) -> MonotonicTime? { box.outbox.ledger.record(of: 1, now: now)?.time }
    #expect(time(at: start) == start)
    box.outbox.clock = start + .seconds(5)
    _ = box.take()
    #expect(time(at: start + .seconds(9)) == start)
    box.outbox.written(through: 1)
    for later in [TimeSpan.seconds(5), .milliseconds(5_004), .hours(24 * 200)] {
      #expect(time(at: start + later) == start + .seconds(5))
    }
    // A reader whose clock is behind gets its own current time, not a time in the far past.
    #expect(time(at: start + .milliseconds(4_990)) == start + .milliseconds(4_990))
  }

  @Test func aMessageOlderThanTheLedgerKeepsItsReasonAndTime() {
    var box = OutboxFixture { $0.redelivery = .unconfirmed }
    box.outbox.clock = .zero + .seconds(7)
    box.post("first", ttl: nil)
    for _ in 0..<DeliveryLedger.minimumLimit { box.post("x", topic: "t") }
    box.outbox.clock = .zero + .seconds(8)
    box.outbox.close()
    let record = box.outbox.ledger.record(of: 1, now: .zero + .seconds(9))
    #expect(record == DeliveryRecord(state: .rejected, reason: .sessionClosed, time: .zero + .seconds(8)))
  }
}
