import ByteStreams
import Replication
import Testing

/// Which gateways are tried, and which are reported as never reached.
@Suite struct PeerChecksTests {
  private let one = GatewayID(1)
  private let two = GatewayID(2)

  private func time(_ seconds: Int64) -> MonotonicTime { .zero + .seconds(seconds) }

  @Test func aGatewayIsCheckedUntilItIsReachedOnce() {
    var checks = PeerChecks()
    func due(_ seconds: Int64) -> [String] { checks.due([one: "a:1"], now: time(seconds)).map(\.address) }
    #expect(due(1) == ["a:1"] && due(2).isEmpty, "one attempt at a time")
    #expect(checks.unreachable.isEmpty, "nothing is known yet")
    checks.ended(one, at: "a:1", failure: "refused", now: time(3))
    #expect(checks.unreachable[one]?.reason == "refused" && checks.named == [one])
    #expect(due(4).isEmpty && due(5) == ["a:1"])
    #expect(checks.named == [one], "the gateway stays unreached while it is tried again")
    checks.ended(one, at: "a:1", failure: nil, now: time(6))
    #expect(checks.unreachable.isEmpty && due(100).isEmpty)
  }

  @Test func aNewAddressIsCheckedAndALateOutcomeOfTheOldAddressDropped() {
    var checks = PeerChecks()
    _ = checks.due([one: "a:1"], now: time(1))
    #expect(checks.due([one: "b:1"], now: time(1)).map(\.address) == ["b:1"])
    checks.ended(one, at: "a:1", failure: "refused", now: time(2))
    #expect(checks.unreachable.isEmpty)
  }

  @Test func aGatewayThatHasEndedIsForgotten() {
    var checks = PeerChecks()
    _ = checks.due([one: "a:1", two: "b:1"], now: time(1))
    checks.ended(one, at: "a:1", failure: "refused", now: time(1))
    _ = checks.due([two: "b:1"], now: time(2))
    #expect(checks.unreachable.isEmpty)
  }

  @Test func anEntryNamesALimitedNumberOfGateways() {
    var checks = PeerChecks()
    let many = Dictionary(uniqueKeysWithValues: (1...100).map { (GatewayID($0), "a:\($0)") })
    for (gateway, address) in checks.due(many, now: time(1)) {
      checks.ended(gateway, at: address, failure: "refused", now: time(1))
    }
    #expect(checks.named == (1...UInt64(PeerChecks.maximumNamed)).map { GatewayID($0) })
  }
}

/// Whether a gateway counts as reachable, by the entries of the other gateways.
@Suite struct ReachabilityTests {
  private let own = GatewayID(1)

  /// Heartbeats of the other gateways at 1 and 2 s. Each entry contains the gateways that its own gateway has never
  /// reached.
  private func watch(_ others: [UInt64: [UInt64]], isDraining: Bool = false) -> HistoryWatch {
    var watch = HistoryWatch(own: own)
    _ = watch.connected(to: "h", now: .zero)
    for beat in UInt64(1)...2 {
      let entries = others.map { gateway, unreachable in
        var text = ByteQueue()
        GatewayEntry(
          beat: beat, history: "h", isDraining: isDraining, address: "a:\(gateway)",
          unreachable: unreachable.map { GatewayID($0) }
        ).write(into: &text)
        return (gateway: GatewayID(gateway), text: text.copyBytes())
      }
      watch.received(entries, now: .zero + .seconds(Int64(beat)))
    }
    return watch
  }

  private let now = MonotonicTime.zero + .milliseconds(2_500)

  @Test func aGatewayIsUnreachableIfNoOtherGatewayReachesIt() {
    #expect(watch([2: [1], 3: [1]]).isUnreachable(now: now))
    #expect(!watch([2: [1], 3: []]).isUnreachable(now: now), "one gateway reaches this gateway")
    #expect(!watch([2: [3]]).isUnreachable(now: now))
    #expect(!watch([:]).isUnreachable(now: now), "there is no other gateway")
    #expect(
      !watch([2: [1]], isDraining: true).isUnreachable(now: now), "the entry of a gateway that drains does not count")
  }

  @Test func onlyGatewaysWhoseHeartbeatsArriveCount() {
    #expect(watch([2: [1]]).freshAddresses(now: now) == [GatewayID(2): "a:2"])
    let later = now + .seconds(2)
    #expect(watch([2: [1]]).freshAddresses(now: later).isEmpty && !watch([2: [1]]).isUnreachable(now: later))
  }
}

@Suite struct UpstreamHostsTests {
  @Test func checksAreReadAsTheyWereWritten() {
    let hosts = UpstreamHosts(["b": ["x:1"], "a": ["z:1", "y:1", "z:1"]])
    #expect(hosts.text == "a y:1,z:1\nb x:1\n" && UpstreamHosts(hosts.text) == hosts)
    #expect(UpstreamHosts("a y:1,z:1\nof a later version\nb x:1\n") == hosts)
  }

  @Test func onlySessionsOfBothGatewaysCanDiffer() {
    let own = UpstreamHosts(["a": ["x:1"], "b": ["y:1"], "c": ["z:1"]])
    #expect(own.difference(from: UpstreamHosts(["a": ["x:1"], "d": ["q:1"]])) == nil)
    let difference = own.difference(from: UpstreamHosts(["c": ["q:1"], "b": ["q:1"]]))
    #expect(difference?.session == "b" && difference?.own == "y:1" && difference?.other == "q:1")
  }
}
