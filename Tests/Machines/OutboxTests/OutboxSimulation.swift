import ByteStreams
import TestSupport
import Testing
import Totals

@testable import Outbox

/// Random operations on an outbox, compared with a model of the messages that the upstream has received.
@Suite struct OutboxSimulation {
  @Test(arguments: [OutboxSettings.Redelivery.never, .unconfirmed], [UInt64](1...20))
  func endsEveryMessageOnceWithTheReportedState(redelivery: OutboxSettings.Redelivery, seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var settings = OutboxSettings()
    settings.redelivery = redelivery
    settings.maximumMessages = 50
    if seed % 3 == 0 { settings.overflow = .dropOldest }
    if seed % 4 == 0 { settings.pace = Pace(messages: 200, burst: 5) }
    settings.maximumAttempts = Int.random(in: 1...4, using: &random)
    settings.maximumBarriers = Int.random(in: 1...4, using: &random)
    var outbox = Outbox(settings)
    var now = MonotonicTime.zero
    // The messages that the connection has taken and not written, and the counters of its pings without pongs.
    // `arrived`: for each message, how many times the upstream has received it.
    var buffer: [OutboxMessage] = []
    var pings: [UInt64] = []
    var counter: UInt64 = 0
    var arrived: [UInt64: Int] = [:]
    var lastArrived: UInt64 = 0
    // For each message, how many times it had arrived when the upstream replied to it.
    var arrivedBeforeReply: [UInt64: Int] = [:]

    for _ in 0..<10_000 {
      now = now + .milliseconds(Int64.random(in: 0...20, using: &random))
      switch Int.random(in: 0..<22, using: &random) {
      case 0..<8:
        let ttl: TimeSpan? = [.zero, .milliseconds(50), .seconds(1), nil].randomElement(using: &random) ?? nil
        let topic: String? = Int.random(in: 0..<6, using: &random) == 0 ? "t" : nil
        let body = ByteString(Array(repeating: 1, count: Int.random(in: 0...64, using: &random)))
        let client = UInt64.random(in: 0...3, using: &random)
        _ = outbox.enqueue(ByteSlice(body), kind: .binary, timeToLive: ttl, topic: topic, by: client, now: now)
      case 8..<11:
        outbox.takeBatch(
          maximumMessages: Int.random(in: 1...8, using: &random), maximumBytes: 256, now: now, into: &buffer)
      case 11..<14:
        let count = Int.random(in: 0...buffer.count, using: &random)
        guard count > 0 else { continue }
        for message in buffer[..<count] {
          arrived[message.sequence, default: 0] += 1
          if redelivery == .never {
            #expect(message.sequence > lastArrived, "out of order")
            lastArrived = message.sequence
          }
        }
        outbox.written(through: buffer[count - 1].sequence)
        buffer.removeFirst(count)
      case 14..<16:
        guard outbox.hasSendingConnection, buffer.isEmpty else { continue }
        counter += 1
        outbox.barrierSent(counter)
        pings.append(counter)
      case 16..<18:
        guard !pings.isEmpty else { continue }
        outbox.confirm(pings.removeFirst())
      case 18:
        outbox.expire(now: now)
        // Withdraws one of the last 16 messages, whatever its state.
        outbox.withdraw(outbox.ledger.last &- UInt64.random(in: 0..<16, using: &random))
        guard outbox.hasSendingConnection, Bool.random(using: &random) else { continue }
        // The kernel has taken at most a part of the first message.
        let kept = Int.random(in: 0...min(1, buffer.count), using: &random)
        outbox.block(returning: kept < buffer.count ? buffer[kept].sequence : nil)
        buffer.removeSubrange(kept...)
      case 19..<21:
        // The upstream replies to one of the last 16 messages, if that message has arrived.
        let sequence = outbox.ledger.last &- UInt64.random(in: 0..<16, using: &random)
        guard let times = arrived[sequence], let state = outbox.ledger.state(of: sequence) else { continue }
        outbox.replied(to: sequence)
        if state == .queued || state == .written { arrivedBeforeReply[sequence] = times }
      default:
        if outbox.hasSendingConnection {
          // Some connections are lost in the middle of a message, and some because a message is too large for the
          // upstream.
          let begun = Bool.random(using: &random) ? buffer.first?.sequence : nil
          outbox.stopSending(closedAsTooBig: Int.random(in: 0..<4, using: &random) == 0, partiallyWritten: begun)
          outbox.settle(partiallyWritten: begun)
          buffer.removeAll()
          pings.removeAll()
        } else {
          outbox.startSending()
        }
      }
      #expect(outbox.messages + outbox.kept <= settings.messageReserve.maximum)
      #expect(outbox.ledger.count(in: .queued) == outbox.messages)
      #expect((outbox.flight?.barriers.count ?? 0) <= settings.maximumBarriers)
    }

    outbox.stopSending()
    outbox.settle()
    outbox.close()
    let final: Set<DeliveryState> = [.confirmed, .expired, .replaced, .rejected, .unknown]
    var total: UInt64 = 0
    for state in final { total += outbox.ledger.total(state) }
    #expect(total == outbox.ledger.last, "each message ends once")
    #expect(outbox.messages == 0 && outbox.bytes == 0 && outbox.ring.isEmpty && outbox.waiting + outbox.kept == 0)
    #expect(outbox.waitingBytes == 0 && outbox.clientTotals.clientCount == 0)
    #expect(outbox.ledger.total(.queued) == outbox.ledger.last)
    for sequence in 1...outbox.ledger.last {
      guard let state = outbox.ledger.state(of: sequence) else { continue }
      #expect(final.contains(state))
      let times = arrived[sequence] ?? 0
      if redelivery == .never { #expect(times <= 1) }
      #expect(times <= settings.maximumAttempts)
      if let before = arrivedBeforeReply[sequence] {
        #expect(state == .confirmed && times <= before + 1, "only a buffered copy may still arrive")
      }
      switch state {
      case .confirmed: #expect(times >= 1)
      case .expired, .replaced: #expect(times == 0)
      // A message that the upstream refused or that was dropped is not sent again.
      case .rejected: #expect(times <= 1 || redelivery == .unconfirmed)
      case .unknown, .queued, .written: break
      }
    }
  }
}
