import ByteStreams
import TestSupport
import Testing

@testable import Replication

/// The deadline of a gateway, and the duration of a take-over if nothing else fails.
@Suite struct HeartbeatTests {
  private func at(_ milliseconds: Int64) -> MonotonicTime { .zero + .milliseconds(milliseconds) }

  @Test func theDeadlineCountsFromTheSendingOfAConfirmedHeartbeat() {
    var heartbeat = Heartbeat()
    #expect(!heartbeat.isValid(now: at(1000)) && heartbeat.nextTime == .zero)
    _ = heartbeat.send(now: at(1000))
    #expect(heartbeat.nextTime == nil)
    heartbeat.finished(isConfirmed: false, now: at(1010))
    #expect(!heartbeat.isValid(now: at(1010)) && heartbeat.nextTime == at(1250))
    _ = heartbeat.send(now: at(1250))
    heartbeat.finished(isConfirmed: true, now: at(1300))
    #expect(heartbeat.isValid(now: at(5249)) && !heartbeat.isValid(now: at(5250)))
    #expect(heartbeat.lapses == 0)
  }

  @Test func aHastenedHeartbeatWaitsForThePendingHeartbeat() {
    var heartbeat = Heartbeat()
    _ = heartbeat.send(now: at(1000))
    heartbeat.hasten()
    #expect(heartbeat.nextTime == nil)
    heartbeat.finished(isConfirmed: true, now: at(1010))
    #expect(heartbeat.nextTime == .zero)
    _ = heartbeat.send(now: at(1010))
    heartbeat.finished(isConfirmed: true, now: at(1020))
    #expect(heartbeat.nextTime == at(1260))
  }

  /// A process that was stopped may receive a successful reply when another gateway already has its sessions.
  @Test func aLapseIsDetectedBeforeTheReplyThatEndsIt() {
    var heartbeat = Heartbeat()
    _ = heartbeat.send(now: at(0))
    heartbeat.finished(isConfirmed: true, now: at(10))
    _ = heartbeat.send(now: at(3900))
    heartbeat.finished(isConfirmed: true, now: at(4100))
    #expect(heartbeat.lapses == 1 && heartbeat.isValid(now: at(4100)))
    let isNews = heartbeat.check(now: at(7900))
    let isNewsAgain = heartbeat.check(now: at(7901))
    #expect(isNews && !isNewsAgain && heartbeat.lapses == 2)
  }

  @Test func theMarginGrowsWithTheLease() {
    for seconds in [2, 5, 7, 60] as [Int64] {
      let times = TenureTimes(lease: .seconds(seconds))
      #expect(times.margin == max(.seconds(1), .milliseconds(200 * seconds)))
    }
  }

  @Test func aGatewayKeepsItsSessionsForTheLongerOfTwoLeases() {
    let (own, other, unknown) = (GatewayID(1), GatewayID(2), GatewayID(3))
    func watch(_ entry: String?, lease: TimeSpan) -> HistoryWatch {
      var watch = HistoryWatch(own: own, TenureTimes(lease: lease))
      _ = watch.connected(to: "h", now: at(0))
      watch.received(entry.map { [(other, Array($0.utf8))] } ?? [], now: at(1000))
      return watch
    }
    let short = watch("beat=1 history=h lease=9000", lease: .seconds(5))
    #expect(!short.isGone(other, now: at(9999)) && short.isGone(other, now: at(10_000)))
    let long = watch("beat=1 history=h lease=5000", lease: .seconds(9))
    #expect(!long.isGone(other, now: at(9999)) && long.isGone(other, now: at(10_000)))
    #expect(!short.isGone(unknown, now: at(8999)), "it may have the longest lease")
    // The entry was lost or deleted.
    var without = short
    without.received([], now: at(2000))
    #expect(!without.isGone(other, now: at(10_999)) && without.isGone(other, now: at(11_000)))
    let slow = watch("beat=1 history=h lease=60000", lease: .seconds(5))
    #expect(slow.forgettable(now: at(85_999)).isEmpty && slow.forgettable(now: at(86_000)).count == 1)
  }

  @Test func aMissingOwnEntryRevealsALossOfData() {
    let (own, other) = (GatewayID(1), GatewayID(2))
    let both = [(own, "beat=1 history=h lease=5000"), (other, "beat=1 history=h lease=9000")].map {
      ($0, Array($1.utf8))
    }
    /// Returns for each reply whether it reports a loss.
    func losses(_ watch: inout HistoryWatch, _ replies: [([(GatewayID, [UInt8])], Int64)]) -> [Bool] {
      replies.map { entries, time in watch.received(entries, now: at(time)) }
    }
    for remaining in [[], [both[1]]] {
      var watch = HistoryWatch(own: own)
      _ = watch.connected(to: "h", now: at(0))
      #expect(losses(&watch, [([], 0), (both, 250)]) == [false, false])
      #expect(!watch.mayHaveLostSessions(now: at(250)))
      #expect(losses(&watch, [(remaining, 500), (both, 750)]) == [true, false])
      #expect(watch.mayHaveLostSessions(now: at(9499)) && !watch.mayHaveLostSessions(now: at(9500)))
    }
    // Other gateways delete the entry of a gateway that has ended, or was unreachable for long. Such a missing entry is
    // not a loss. After a change of the history, any entry may be missing.
    var watch = HistoryWatch(own: own)
    _ = watch.connected(to: "h", now: at(0))
    #expect(losses(&watch, [(both, 250), ([both[0]], 500), ([], 25_300)]) == [false, false, false])
    #expect(losses(&watch, [(both, 25_500)]) == [false])
    _ = watch.connected(to: "i", now: at(25_600))
    #expect(losses(&watch, [([], 25_700)]) == [false])
  }

  /// Redis may have lost the session. Its holder notices the loss with its next heartbeat.
  @Test func aSessionIsCreatedAfterTheHeartbeatOfAHolder() {
    let own = GatewayID(1)
    var generator = SeededGenerator(seed: 1)
    var watch = HistoryWatch(own: own)
    _ = watch.connected(to: "h", now: at(0))
    watch.received([], now: at(0))
    var heartbeat = Heartbeat()
    _ = heartbeat.send(now: at(0))
    heartbeat.finished(isConfirmed: true, now: at(0))
    var record = SharedRecord()
    func commands() -> [Bool] {
      var candidate = Candidate(session: "s")
      var watch = watch
      return (0..<5 as Range<Int64>).map { step in
        let command = candidate.next(isDraining: false, watch, heartbeat, now: at(100 * step), using: &generator)
        if case .read = command { candidate.observed(record) }
        if step > 0 { watch.received([], now: at(100 * step)) }
        if case .acquire = command { return true }
        return false
      }
    }
    #expect(commands() == [false, false, false, false, true])
    // A client has created the session at this gateway.
    record.successor = own
    #expect(commands() == [false, true, false, false, false])
  }

  private func takeOver(seed: UInt64, _ end: (ReplicationWorld, SimulatedGateway) -> Void) throws -> Int {
    let world = ReplicationWorld(seed: seed, waits: true, duration: 1_000_000, leases: [5])
    while world.time < 3000 + Int(seed % 10) * 25 { try world.turn(withFaults: false) }
    let holder = try #require(world.gateways.first { $0.mayWrite })
    end(world, holder)
    while holder.tenure != nil, !holder.isDead { try world.turn(withFaults: false) }
    let start = world.time
    while !world.gateways.contains(where: { $0 !== holder && $0.mayWrite }) {
      try world.turn(withFaults: false)
      guard world.time < start + 20_000 else { return .max }
    }
    return world.time - start
  }

  @Test(arguments: 0..<10 as Range<UInt64>)
  func aTakeOverIsQuick(seed: UInt64) throws {
    let planned = try takeOver(seed: seed) { world, holder in
      holder.drain(until: world.time)
    }
    #expect(planned <= 500)
    let afterCrash = try takeOver(seed: seed) { world, holder in world.kill(holder) }
    #expect(afterCrash <= 6000)
  }
}
