import ByteStreams
import JournalCoding
import TestSupport
import Testing
import UpstreamSession

@testable import Outbox

/// An outbox whose messages are stored: the messages that may be written, and the messages that are restored.
@Suite struct OutboxStoringTests {
  private let now = MonotonicTime.zero + .hours(1)
  private var clock: JournalClock { JournalClock(now: now, wallClock: 1_800_000_000_000) }

  /// The messages of an earlier process. They are queued, and a connection may have written the first of them.
  ///
  /// - Parameters:
  ///   - last: the last message that was queued.
  ///   - expired: the message whose time to live has ended meanwhile.
  private func stored(
    _ messages: ClosedRange<UInt64>, last: UInt64? = nil, intended: UInt64 = 1, expired: UInt64? = nil
  ) -> StoredOutbox {
    var stored = StoredOutbox()
    for number in Array(messages) + (last.map { [$0] } ?? []) {
      let message = StoredMessage(
        number: number, payload: ByteString([UInt8(truncatingIfNeeded: number)]), kind: .text, topic: nil,
        deadline: number == expired ? clock.wallClock : nil, time: clock.wallClock)
      apply(.accepted(message), to: &stored)
    }
    apply(.intended(through: intended), to: &stored)
    return stored
  }

  private func apply(_ change: OutboxChange, to stored: inout StoredOutbox) {
    let follows = stored.apply(change)
    #expect(follows)
  }

  private func take(_ outbox: inout Outbox) -> [UInt64] {
    var batch: [OutboxMessage] = []
    outbox.takeBatch(maximumMessages: 100, maximumBytes: 1 << 20, now: now, into: &batch)
    return batch.map(\.sequence)
  }

  @Test func aMessageIsTakenOnlyOnceItsIntentIsStored() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(StoredOutbox(), at: clock)
    outbox.startSending(on: Generation(1))
    for number in 1...3 as ClosedRange<UInt64> {
      _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now)
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

  /// A pong or a reply confirms the message. The connection is lost before the confirmation is released.
  @Test(arguments: [false, true], [false, true])
  func aWithheldConfirmationIsShownWhenItIsReleased(isReplied: Bool, redelivers: Bool) {
    var settings = OutboxSettings()
    settings.redelivery = redelivers ? .unconfirmed : .never
    var outbox = Outbox(settings)
    outbox.startSending(on: Generation(1))
    for _ in 1...4 { _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now) }
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

  /// The connection is lost before a pong arrives.
  @Test func aMessageWhoseConfirmationIsWithheldIsUnknownWithoutAPong() {
    var outbox = Outbox(OutboxSettings())
    outbox.startSending(on: Generation(1))
    _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now)
    #expect(take(&outbox) == [1])
    outbox.written(through: 1)
    outbox.withholdConfirmation(of: 1)
    outbox.stopSending()
    outbox.settle()
    outbox.releaseConfirmation(of: 1)
    #expect(outbox.ledger.state(of: 1) == .unknown)
  }

  /// No pong arrives. The connection is lost after the reply, or a new connection gets the message before the reply
  /// arrives.
  @Test(arguments: [false, true], [false, true])
  func aMessageWithAReplyWhoseConfirmationIsWithheldIsConfirmed(redelivers: Bool, isLate: Bool) {
    var settings = OutboxSettings()
    settings.redelivery = redelivers ? .unconfirmed : .never
    var outbox = Outbox(settings)
    outbox.startSending(on: Generation(1))
    for _ in 1...3 { _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now) }
    #expect(take(&outbox) == [1, 2, 3])
    outbox.written(through: 3)
    outbox.withholdConfirmation(of: 2)
    if !isLate { outbox.replied(to: 2) }
    outbox.stopSending()
    outbox.settle()
    if redelivers {
      if isLate {
        // The message is in the queue, but is not sent again.
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
    _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now)
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

  /// The connection does not confirm messages.
  @Test func aMessageThatIsFinallyWrittenIsSettledWhenItIsReleased() {
    var settings = OutboxSettings()
    settings.confirms = false
    var outbox = Outbox(settings)
    outbox.startSending(on: Generation(1))
    for _ in 1...2 { _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now) }
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
    outbox.startStoring(StoredOutbox(), at: clock)
    outbox.startSending(on: Generation(1))
    _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: .zero, now: now)
    #expect(take(&outbox) == [1])
  }

  /// A stored outbox whose first messages may be sent on the first connection.
  private func sending(through last: UInt64, _ settings: OutboxSettings) -> Outbox {
    var outbox = Outbox(settings)
    outbox.startStoring(StoredOutbox(), at: clock)
    _ = outbox.takeLoweredIntent()
    outbox.startSending(on: Generation(1))
    for number in 1...last {
      _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now)
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

  @Test func aWrittenMessageThatIsQueuedAgainStaysIntended() {
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

  @Test func messagesThatMayHaveBeenWrittenAreUnknownAndOthersQueuedAgain() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(stored(1...4, expired: 3), at: clock)
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

  @Test func withRedeliveryMessagesThatMayHaveBeenWrittenAreQueuedAgain() {
    var settings = OutboxSettings()
    settings.redelivery = .unconfirmed
    var outbox = Outbox(settings)
    outbox.startStoring(stored(1...2), at: clock)
    #expect(outbox.takeLoweredIntent() == 1, "the next process must know that the message may have arrived")
    outbox.startSending(on: Generation(1))
    outbox.intend(through: 2)
    outbox.permit(through: 2)
    #expect(take(&outbox) == [1, 2])
  }

  @Test func aClosedOutboxKeepsStoredMessages() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(StoredOutbox(), at: clock)
    _ = outbox.enqueue(ByteSlice(ByteString([0x61])), kind: .text, timeToLive: nil, now: now)
    outbox.noteStored(1)
    outbox.close()
    #expect(outbox.ledger.state(of: 1) == .queued)
  }

  /// A store keeps the states of only the last messages.
  @Test func aMessageThatIsOlderThanTheStoredStatesIsQueuedAgain() {
    for last in [70_000, 100] as [UInt64] {
      var outbox = Outbox(OutboxSettings())
      outbox.startStoring(stored(1...3, last: last), at: clock)
      #expect(outbox.ledger.record(of: 1, now: now)?.reason == .gatewayRestart)
      #expect(outbox.ledger.state(of: 2) == .queued)
      #expect(outbox.ledger.count(in: .queued) == 3)
      outbox.startSending(on: Generation(1))
      outbox.intend(through: 3)
      outbox.permit(through: 3)
      #expect(take(&outbox) == [2, 3])
      outbox.written(through: 3)
      #expect(outbox.ledger.state(of: 3) == .written)
    }
  }

  /// Submitted changes, and the changes that replace them, restore the outbox's queue and the states of its messages.
  @Test(arguments: 0..<20 as Range<UInt64>)
  func aStoredOutboxIsTheOutboxThatSubmittedIt(seed: UInt64) throws {
    var random = SeededGenerator(seed: seed)
    var settings = OutboxSettings()
    settings.redelivery = Bool.random(using: &random) ? .unconfirmed : .never
    var live = Outbox(settings)
    var (stored, clock) = (StoredOutbox(), clock)
    live.startStoring(stored, at: clock)
    var (generation, barrier, isSending, last) = (0 as UInt64, 0 as UInt64, false, 0 as UInt64)
    var payloads: [UInt64: [UInt8]] = [:]
    for _ in 0..<400 {
      let step = Int64.random(in: 0...500, using: &random) * 10
      clock = JournalClock(now: clock.now + .milliseconds(step), wallClock: clock.wallClock + step)
      live.clock = clock.now
      live.expire(now: clock.now)
      switch Int.random(in: 0..<8, using: &random) {
      case 0...2:
        let payload = [UInt8.random(in: 0...255, using: &random)]
        let lifetime: TimeSpan? = Bool.random(using: &random) ? nil : .seconds(60)
        guard
          case .queued(let number, _) = live.enqueue(
            ByteSlice(ByteString(payload)), kind: .text, timeToLive: lifetime, now: clock.now)
        else { continue }
        live.noteStored(number)
        (payloads[number], last) = (payload, number)
        let message = StoredMessage(
          number: number, payload: ByteString(payload), kind: .text, topic: nil,
          deadline: lifetime.map { clock.wallClock + $0.millisecondsRoundedUp }, time: clock.wallClock)
        apply(.accepted(message), to: &stored)
      case 3 where !isSending:
        (generation, isSending) = (generation + 1, true)
        live.startSending(on: Generation(generation))
      case 3:
        isSending = false
        live.stopSending()
        live.settle()
      case 4:
        guard let through = live.nextIntent(maximumMessages: 5, maximumBytes: 100, now: clock.now) else { continue }
        live.intend(through: through)
        live.permit(through: through)
        apply(.intended(through: through), to: &stored)
      case 5 where isSending:
        var batch: [OutboxMessage] = []
        live.takeBatch(maximumMessages: 3, maximumBytes: 100, now: clock.now, into: &batch)
        if let last = batch.last { live.written(through: last.sequence) }
      case 6 where isSending:
        barrier += 1
        live.barrierSent(barrier, on: Generation(generation))
        live.confirm(barrier, on: Generation(generation))
      case 7:
        let before = stored
        stored = StoredOutbox()
        for change in before.changes { apply(try coded(change), to: &stored) }
        #expect(stored == before)
      default: break
      }
      live.takeChanges(at: clock) { change in
        do { apply(try coded(change), to: &stored) } catch { Issue.record(error) }
      }
      #expect(stored.nextDelivery == last + 1)
      for number in 1..<last + 1 {
        let (record, delivery) = (live.ledger.record(of: number, now: clock.now), stored.delivery(number))
        #expect(record?.state.rawValue == delivery?.state && (record?.reason?.rawValue ?? 0) == delivery?.reason)
        #expect(record?.time == delivery.map { clock.time(of: $0.time * 10) }, "message \(number)")
        // The payload of a message that may still be sent is stored.
        let isHeld = record.map { !live.ledger.releasesPayload($0.state) } ?? false
        #expect(stored.messages[number].map { [UInt8](copying: $0.payload.bytes) } == (isHeld ? payloads[number] : nil))
      }
    }
  }

  private func coded(_ change: OutboxChange) throws -> OutboxChange {
    var coder = JournalCoder(appendingTo: ByteQueue())
    change.write(&coder)
    let bytes = coder.finish()
    var reader = JournalCoder(reading: bytes.bytes)
    let read = OutboxChange(tag: reader.byte(nil), &reader)
    #expect(read == change && reader.rest == 0)
    return try #require(read)
  }

  @Test func noMessageWithTTLZeroWaitsForAFailedStore() {
    var outbox = Outbox(OutboxSettings())
    outbox.startStoring(StoredOutbox(), at: clock)
    outbox.startSending(on: Generation(1))
    let payload = ByteSlice(ByteString([0x61]))
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
    // No message waits for the store.
    outbox.storeChanged(hasFailed: true)
    _ = outbox.enqueue(payload, kind: .text, timeToLive: .zero, now: now)
    #expect(take(&outbox) == [3])
  }
}
