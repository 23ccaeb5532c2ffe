import ByteStreams
import Replication
import Testing

@testable import RedisStore

/// The conditions about which the log warns operators.
@Suite struct StoreConditionsTests {
  private func time(_ seconds: Int64) -> MonotonicTime { .zero + .seconds(seconds) }

  @Test func evictionIsReportedWhenItBeginsAndEnds() {
    var conditions = StoreConditions()
    func observe(_ policy: String, _ seconds: Int64) -> Bool? {
      conditions.observed(memory: "# Memory\r\nmaxmemory_policy:\(policy)\r\n", now: time(seconds))?.isWarning
    }
    #expect(observe("noeviction", 1) == nil)
    #expect(observe("allkeys-lru", 2) == true && observe("volatile-lru", 3) == nil)
    #expect(observe("noeviction", 4) == false && observe("noeviction", 5) == nil)
    let without = conditions.observed(memory: "", now: time(6))
    #expect(without?.isWarning == nil)
  }

  @Test func memoryIsReadOnceAMinute() {
    var conditions = StoreConditions()
    #expect([1, 60, 61, 62].map { conditions.isMemoryDue(now: time($0)) } == [true, false, true, false])
  }

  @Test func aMissingReplicaIsReportedAfterAWhile() {
    var conditions = StoreConditions()
    func observe(_ count: Int, _ seconds: Int64, required: Int = 1) -> Bool? {
      conditions.observed(
        replication: "role:master\r\nconnected_slaves:\(count)\r\n", required: required, now: time(seconds))?.isWarning
    }
    #expect(observe(0, 1, required: 0) == nil && observe(0, 100, required: 0) == nil, "none is needed")
    #expect(observe(1, 101) == nil && observe(2, 105) == nil, "it restarts")
    #expect(observe(1, 106) == nil && observe(0, 115) == nil && observe(1, 116) == true && observe(0, 117) == nil)
    #expect(observe(2, 118) == false)
  }

  @Test func aGatewayWithOtherSettingsIsReportedAfterAMinute() {
    var conditions = StoreConditions()
    func observe(_ others: [UInt64: String], _ seconds: Int64) -> [Bool] {
      let others = others.map { (GatewayID($0), (configuration: $1, address: "a:1")) }
      return conditions.observed("x", Dictionary(uniqueKeysWithValues: others), now: time(seconds)).map(\.isWarning)
    }
    #expect(observe([1: "x", 2: "y"], 1).isEmpty && observe([1: "x", 2: "y"], 60).isEmpty)
    #expect(observe([1: "x", 2: "y"], 61) == [true] && observe([1: "x", 2: "y"], 62).isEmpty)
    #expect(observe([1: "x", 2: "x"], 63) == [false])
    // A gateway that has ended no longer counts.
    #expect(observe([3: "y"], 64).isEmpty && observe([:], 70).isEmpty && observe([3: "y"], 130).isEmpty)
  }
}
