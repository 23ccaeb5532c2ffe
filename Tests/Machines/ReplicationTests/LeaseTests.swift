import ByteStreams
import Testing

@testable import Replication

/// The deadline of a gateway, and how long a take-over takes when nothing else fails.
@Suite struct LeaseTests {
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

  /// A process that was stopped finds a reply that is good, and yet another gateway may have its sessions.
  @Test func aLapseIsNoticedBeforeTheReplyThatEndsIt() {
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

  private func takeOver(seed: UInt64, _ end: (ReplicationWorld, SimulatedGateway) -> Void) throws -> Int {
    let world = ReplicationWorld(seed: seed, waits: true, duration: 1_000_000)
    while world.time < 3000 + Int(seed % 10) * 25 { try world.turn(withFaults: false) }
    let holder = try #require(world.gateways.first { $0.mayWrite })
    end(world, holder)
    while holder.holding != nil, !holder.isDead { try world.turn(withFaults: false) }
    let start = world.time
    while !world.gateways.contains(where: { $0 !== holder && $0.mayWrite }) {
      try world.turn(withFaults: false)
      guard world.time < start + 20_000 else { return .max }
    }
    return world.time - start
  }

  @Test(arguments: 0..<10 as Range<UInt64>)
  func aTakeOverIsQuick(seed: UInt64) throws {
    let planned = try takeOver(seed: seed) { _, holder in
      holder.isDraining = true
      holder.holding?.releaseSoon(to: holder.watch.successor(for: "s", now: holder.now))
    }
    #expect(planned <= 500)
    let afterCrash = try takeOver(seed: seed) { world, holder in world.kill(holder) }
    #expect(afterCrash <= 6000)
  }
}
