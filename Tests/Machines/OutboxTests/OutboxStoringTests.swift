import ByteStreams
import Testing
import UpstreamSession

@testable import Outbox

/// An outbox whose messages are stored: what may be written, and what is restored.
@Suite struct OutboxStoringTests {
  private let now = MonotonicTime.zero + .hours(1)

  private func message(_ number: UInt64, mayHaveArrived: Bool = false, deadline: MonotonicTime = .distantFuture)
    -> RestoredMessage
  {
    RestoredMessage(
      sequence: number, payload: SharedBytes([UInt8(number)]), kind: .text, topic: nil, deadline: deadline,
      mayHaveArrived: mayHaveArrived)
  }

  private func queued(_ count: Int) -> [RestoredDelivery?] {
    Array(repeating: RestoredDelivery(state: .queued, reason: nil, time: now), count: count)
  }

  private func take(_ outbox: inout Outbox) -> [UInt64] {
    var batch: [OutboxMessage] = []
    outbox.takeBatch(maximumMessages: 100, maximumBytes: 1 << 20, now: now, into: &batch)
    return batch.map(\.sequence)
  }

  @Test func aMessageIsTakenOnlyOnceItsIntentIsStored() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(after: 0, deliveries: [], messages: [], now: now)
    outbox.startSending(on: Generation(1))
    for number in 1...3 as ClosedRange<UInt64> {
      _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now)
      outbox.noteStored(number)
    }
    #expect(take(&outbox).isEmpty)
    #expect(outbox.nextIntent(maximumMessages: 2, maximumBytes: 1 << 20, now: now) == 2)
    outbox.intend(through: 2)
    #expect(take(&outbox).isEmpty)
    outbox.permit(through: 2)
    #expect(take(&outbox) == [1, 2])
    #expect(outbox.nextIntent(maximumMessages: 2, maximumBytes: 1 << 20, now: now) == 3)
  }

  /// Whether a pong or a reply confirms it, and whatever becomes of its connection then.
  @Test(arguments: [false, true], [false, true])
  func aWithheldConfirmationIsShownWhenItIsReleased(isReplied: Bool, redelivers: Bool) {
    var settings = OutboxSettings()
    settings.redelivery = redelivers ? .unconfirmed : .never
    var outbox = Outbox(settings)
    outbox.startSending(on: Generation(1))
    for _ in 1...4 { _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now) }
    #expect(take(&outbox) == [1, 2, 3, 4])
    outbox.written(through: 4)
    for number in [2, 4] as [UInt64] { outbox.withholdConfirmation(of: number) }
    if isReplied { outbox.replied(to: 2) }
    outbox.barrierSent(1, on: Generation(1))
    let count = outbox.confirm(1, on: Generation(1))
    #expect(count == 4)
    #expect((1...4).map { outbox.ledger.state(of: $0) } == [.confirmed, .written, .confirmed, .written])
    outbox.stopSending()
    outbox.settle()
    let before = outbox.ledger.completions
    outbox.releaseConfirmation(of: 2)
    outbox.releaseConfirmation(of: 2)
    #expect(outbox.ledger.state(of: 2) == .confirmed && outbox.ledger.completions == before + 1)
    #expect(outbox.isConfirmationWithheld(of: 4) && !outbox.isConfirmationWithheld(of: 2))
    #expect(outbox.isEmpty)
  }

  /// Its connection is lost before a pong arrives.
  @Test func aMessageWhoseConfirmationIsWithheldIsUnknownWithoutAPong() {
    var outbox = Outbox(OutboxSettings())
    outbox.startSending(on: Generation(1))
    _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now)
    #expect(take(&outbox) == [1])
    outbox.written(through: 1)
    outbox.withholdConfirmation(of: 1)
    outbox.stopSending()
    outbox.settle()
    outbox.releaseConfirmation(of: 1)
    #expect(outbox.ledger.state(of: 1) == .unknown)
  }

  /// Its connection is lost before a pong arrives, and after the reply, or a new connection gets the message before the reply arrives.
  @Test(arguments: [false, true], [false, true])
  func aMessageWithAReplyWhoseConfirmationIsWithheldIsConfirmed(redelivers: Bool, isLate: Bool) {
    var settings = OutboxSettings()
    settings.redelivery = redelivers ? .unconfirmed : .never
    var outbox = Outbox(settings)
    outbox.startSending(on: Generation(1))
    for _ in 1...3 { _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now) }
    #expect(take(&outbox) == [1, 2, 3])
    outbox.written(through: 3)
    outbox.withholdConfirmation(of: 2)
    if !isLate { outbox.replied(to: 2) }
    outbox.stopSending()
    outbox.settle()
    if redelivers {
      if isLate {
        // It is in the queue, and is not sent again.
        outbox.replied(to: 2)
      }
      outbox.startSending(on: Generation(2))
      #expect(take(&outbox) == [1, 3])
    }
    let isLost = isLate && !redelivers
    #expect(outbox.ledger.state(of: 2) == (isLost ? .unknown : .written) && outbox.ledger.isSettled(2) == isLost)
    outbox.releaseConfirmation(of: 2)
    #expect(outbox.ledger.state(of: 2) == (isLost ? .unknown : .confirmed))
    #expect(outbox.ledger.state(of: 1) == (redelivers ? .queued : .unknown))
  }

  @Test func aMessageThatIsSentAgainIsConfirmedWhenItsLastChangeIsStored() {
    var settings = OutboxSettings()
    settings.redelivery = .unconfirmed
    var outbox = Outbox(settings)
    _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now)
    for generation in 1...2 as ClosedRange<UInt64> {
      outbox.startSending(on: Generation(generation))
      #expect(take(&outbox) == [1])
      outbox.withholdConfirmation(of: 1)
      outbox.written(through: 1)
      if generation == 1 {
        outbox.stopSending()
        outbox.settle()
      }
    }
    outbox.barrierSent(1, on: Generation(2))
    outbox.confirm(1, on: Generation(2))
    outbox.releaseConfirmation(of: 1)
    #expect(outbox.ledger.state(of: 1) == .written)
    outbox.releaseConfirmation(of: 1)
    #expect(outbox.ledger.state(of: 1) == .confirmed)
  }

  /// Nothing confirms it.
  @Test func aMessageThatIsFinallyWrittenIsSettledWhenItIsReleased() {
    var settings = OutboxSettings()
    settings.confirms = false
    var outbox = Outbox(settings)
    outbox.startSending(on: Generation(1))
    for _ in 1...2 { _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now) }
    #expect(take(&outbox) == [1, 2])
    outbox.withholdConfirmation(of: 1)
    outbox.written(through: 2)
    #expect(!outbox.ledger.isSettled(1) && !outbox.ledger.isWritten(1))
    #expect(outbox.ledger.isSettled(2) && outbox.ledger.isWritten(2))
    let before = outbox.ledger.completions
    outbox.releaseConfirmation(of: 1)
    #expect(outbox.ledger.isSettled(1) && outbox.ledger.isWritten(1))
    #expect(outbox.ledger.completions > before, "its client is notified")
  }

  @Test func aMessageThatIsNotStoredNeedsNoIntent() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(after: 0, deliveries: [], messages: [], now: now)
    outbox.startSending(on: Generation(1))
    _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: .zero, now: now)
    #expect(take(&outbox) == [1])
  }

  /// A stored outbox whose first messages may be sent on the first connection.
  private func sending(through last: UInt64, _ settings: OutboxSettings) -> Outbox {
    var outbox = Outbox(settings)
    outbox.startStoring(after: 0, deliveries: [], messages: [], now: now)
    _ = outbox.takeLoweredIntent()
    outbox.startSending(on: Generation(1))
    for number in 1...last {
      _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now)
      outbox.noteStored(number)
    }
    outbox.intend(through: last)
    outbox.permit(through: last)
    return outbox
  }

  @Test func theEndOfAConnectionLowersTheIntent() {
    var outbox = sending(through: 2, OutboxSettings())
    #expect(take(&outbox) == [1, 2])
    outbox.written(through: 1)
    outbox.stopSending()
    outbox.settle()
    #expect(outbox.takeLoweredIntent() == 1)
    outbox.startSending(on: Generation(2))
    #expect(take(&outbox).isEmpty)
    outbox.intend(through: 2)
    outbox.permit(through: 2)
    #expect(take(&outbox) == [2])
  }

  @Test func whatWasWrittenAndIsQueuedAgainStaysIntended() {
    var settings = OutboxSettings()
    settings.redelivery = .unconfirmed
    var outbox = sending(through: 3, settings)
    #expect(take(&outbox) == [1, 2, 3])
    outbox.written(through: 2)
    outbox.stopSending()
    outbox.settle()
    #expect(outbox.takeLoweredIntent() == 2, "the third message was not written")
    outbox.startSending(on: Generation(2))
    #expect(take(&outbox) == [1, 2])
  }

  @Test func whatMayHaveBeenWrittenIsUnknownAndTheRestIsQueuedAgain() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(
      after: 4, deliveries: queued(4),
      messages: [message(1, mayHaveArrived: true), message(2), message(3, deadline: now), message(4)], now: now)
    #expect(outbox.ledger.record(of: 1, now: now)?.state == .unknown)
    #expect(outbox.ledger.record(of: 1, now: now)?.reason == .gatewayRestart)
    #expect(outbox.ledger.state(of: 3) == .expired)
    #expect(outbox.takeLoweredIntent() == 1)
    outbox.startSending(on: Generation(1))
    #expect(take(&outbox).isEmpty)
    outbox.intend(through: 4)
    outbox.permit(through: 4)
    #expect(take(&outbox) == [2, 4])
  }

  @Test func withRedeliveryWhatMayHaveBeenWrittenIsQueuedAgain() {
    var settings = OutboxSettings()
    settings.redelivery = .unconfirmed
    var outbox = Outbox(settings)
    outbox.startStoring(
      after: 2, deliveries: queued(2), messages: [message(1, mayHaveArrived: true), message(2)], now: now)
    #expect(outbox.takeLoweredIntent() == 1, "the process after this one must know that it may have arrived")
    outbox.startSending(on: Generation(1))
    outbox.intend(through: 2)
    outbox.permit(through: 2)
    #expect(take(&outbox) == [1, 2])
  }

  @Test func aClosedOutboxKeepsWhatIsStored() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(after: 0, deliveries: [], messages: [], now: now)
    _ = outbox.enqueue(SharedSlice(SharedBytes([0x61])), kind: .text, timeToLive: nil, now: now)
    outbox.noteStored(1)
    outbox.close()
    #expect(outbox.ledger.state(of: 1) == .queued)
  }

  /// Only the states of the last messages are stored.
  @Test func aMessageThatIsOlderThanTheStoredStatesIsQueuedAgain() {
    for last in [70_000, 100] as [UInt64] {
      var outbox = Outbox(OutboxSettings())
      outbox.startStoring(
        after: last, deliveries: queued(1), messages: [message(1, mayHaveArrived: true), message(2), message(3)],
        now: now)
      #expect(outbox.ledger.record(of: 1, now: now)?.reason == .gatewayRestart)
      #expect(outbox.ledger.state(of: 2) == .queued)
      #expect(outbox.ledger.count(in: .queued) == 3)
      outbox.startSending(on: Generation(1))
      outbox.intend(through: last)
      outbox.permit(through: last)
      #expect(take(&outbox) == [2, 3])
      outbox.written(through: 3)
      #expect(outbox.ledger.state(of: 3) == .written)
    }
  }

  @Test func nothingThatMustBeSentAtOnceWaitsForAStoreThatHasFailed() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(after: 0, deliveries: [], messages: [], now: now)
    outbox.startSending(on: Generation(1))
    let payload = SharedSlice(SharedBytes([0x61]))
    _ = outbox.enqueue(payload, kind: .text, timeToLive: nil, now: now)
    outbox.noteStored(1)
    _ = outbox.enqueue(payload, kind: .text, timeToLive: .zero, now: now)
    outbox.storeChanged(hasFailed: true)
    #expect(outbox.ledger.state(of: 1) == .queued)
    #expect(outbox.ledger.record(of: 2, now: now)?.reason == .notSentAtOnce)
    #expect(
      outbox.enqueue(payload, kind: .text, timeToLive: .zero, now: now) == .notReady(.storeFailed))
    outbox.storeChanged(hasFailed: false)
    outbox.intend(through: 1)
    outbox.permit(through: 1)
    #expect(take(&outbox) == [1])
    // Nothing waits for the store.
    outbox.storeChanged(hasFailed: true)
    _ = outbox.enqueue(payload, kind: .text, timeToLive: .zero, now: now)
    #expect(take(&outbox) == [3])
  }
}
