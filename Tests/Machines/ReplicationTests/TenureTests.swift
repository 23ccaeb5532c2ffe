import ByteStreams
import Testing

@testable import Replication

/// Why a gateway gives up a session.
@Suite struct TenureTests {
  private static let own = GatewayID(1)
  private static let other = GatewayID(2)
  private let acquisition: Acquisition
  private var tenure: Tenure
  private var watch = HistoryWatch(own: own)
  private var heartbeat = Heartbeat()
  private var random = SystemRandomNumberGenerator()

  init() {
    let term = HolderTerm(counter: 1, random: 7)
    let token = HolderToken(term: term, gateway: Self.own, bits: 1)
    acquisition = Acquisition(
      expected: SharedRecord(), owner: nil, entry: nil, token: token,
      terms: HolderTerms().appending(term, firstPush: 1), epoch: 5, history: "h", mayHaveLostEntries: false)
    tenure = Tenure(acquisition, lapses: 0)
    _ = watch.connected(to: "h", now: .zero)
    beat(now: .zero, others: "h")
  }

  private mutating func beat(now: MonotonicTime, others history: String) {
    _ = heartbeat.send(now: now)
    heartbeat.finished(isConfirmed: true, now: now)
    let entries = [Self.own, Self.other].map { gateway in
      var text = ByteQueue()
      GatewayEntry(beat: heartbeat.beat, history: gateway == Self.own ? watch.history : history).write(into: &text)
      return (gateway: gateway, text: text.copyBytes())
    }
    watch.received(entries, now: now)
  }

  private mutating func next(now: MonotonicTime = .zero) -> Tenure.Command {
    tenure.next(hasEntries: false, watch, heartbeat, now: now, using: &random)
  }

  @Test mutating func anotherGatewayHasAcquiredTheSession() {
    var record = acquisition.result
    record.token = HolderToken(term: HolderTerm(counter: 2, random: 8), gateway: Self.other, bits: 2)
    tenure.observed(record, isConfirmed: true)
    #expect(next() == .giveUp(.anotherHolder))
  }

  @Test mutating func anotherGatewayHadTheSessionForAWhile() {
    var record = acquisition.result
    record.token = nil
    record.terms.append(HolderTerms.Begin(HolderTerm(counter: 2, random: 8), firstPush: 1))
    tenure.observed(record, isConfirmed: true)
    #expect(next() == .giveUp(.anotherHolder))
  }

  @Test mutating func redisHasReleasedTheSessionButItsReplyWasLost() {
    var record = acquisition.result
    record.token = nil
    tenure.observed(record, isConfirmed: true)
    #expect(next() == .giveUp(.noHolder))
  }

  /// Redis has another history, and the other gateway has ended before it has settled its sessions in this history.
  @Test mutating func redisMayLackTheLastWrites() {
    let late = MonotonicTime.zero + .seconds(60)
    heartbeat.check(now: late)
    _ = watch.connected(to: "h2", now: late)
    beat(now: late, others: "h")
    let later = late + .seconds(60)
    #expect(watch.haveOthersSettled(now: later) && !watch.haveOthersReported)
    tenure.observed(acquisition.result, isConfirmed: true)
    #expect(next(now: late) == .none, "the other gateway may still be alive")
    #expect(next(now: later) == .giveUp(.mayLackWrites))
  }
}
