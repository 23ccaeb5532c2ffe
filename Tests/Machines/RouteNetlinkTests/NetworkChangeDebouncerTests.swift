import ByteStreams
import Testing

@testable import RouteNetlink

@Suite struct NetworkChangeDebouncerTests {
  private let start = MonotonicTime(nanoseconds: 1_000_000_000)
  private let address = IPAddress.ipv4(0x0A00_0001)

  private func debouncer() -> NetworkChangeDebouncer { NetworkChangeDebouncer(quiet: .milliseconds(500)) }

  private func change(gained: Bool = false, vanished: Set<IPAddress> = []) -> NetworkChange {
    var change = NetworkChange()
    change.hasGained = gained
    change.vanished = vanished
    return change
  }

  @Test func waitsUntilTheNetworkIsStable() {
    var debouncer = debouncer()
    #expect(debouncer.deadline == .distantFuture)
    #expect(debouncer.take(now: start) == nil)
    debouncer.add(.link(1, .up), now: start)
    debouncer.add(.address(address, isPresent: true), now: start + .milliseconds(300))
    debouncer.add(.route(isPresent: true), now: start + .milliseconds(400))
    #expect(debouncer.deadline == start + .milliseconds(900))
    #expect(debouncer.take(now: start + .milliseconds(899)) == nil)
    #expect(debouncer.take(now: start + .milliseconds(900)) == change(gained: true))
    #expect(debouncer.deadline == .distantFuture, "one burst is one change")
    #expect(debouncer.take(now: start + .seconds(9)) == nil)
  }

  @Test func doesNotWaitForeverForAStableNetwork() {
    var debouncer = debouncer()
    for step in 0..<20 { debouncer.add(.route(isPresent: true), now: start + .milliseconds(Int64(step) * 100)) }
    #expect(debouncer.deadline == start + .seconds(2))
  }

  @Test func distinguishesGainsFromLosses() {
    let losses: [NetworkEvent] = [.link(1, .down), .route(isPresent: false), .link(2, .removed)]
    let gains: [NetworkEvent] = [.link(1, .up), .route(isPresent: true), .overrun, .address(address, isPresent: true)]
    for event in losses {
      var debouncer = debouncer()
      debouncer.add(event, now: start)
      #expect(debouncer.take(now: start + .seconds(1)) == change(), "\(event)")
    }
    for event in gains {
      var debouncer = debouncer()
      debouncer.add(event, now: start)
      #expect(debouncer.take(now: start + .seconds(1)) == change(gained: true), "\(event)")
    }
  }

  @Test func ignoresAnAddressThatReturns() {
    var debouncer = debouncer()
    let other = IPAddress.ipv6(high: 1, low: 2, scope: 0)
    debouncer.add(.address(address, isPresent: false), now: start)
    debouncer.add(.address(other, isPresent: false), now: start)
    debouncer.add(.address(address, isPresent: true), now: start)
    #expect(debouncer.take(now: start + .seconds(1)) == change(gained: true, vanished: [other]))
  }

  @Test func ignoresALinkWithoutAChange() {
    var debouncer = debouncer()
    debouncer.add(.link(1, .up), now: start)
    _ = debouncer.take(now: start + .seconds(1))
    debouncer.add(.link(1, .up), now: start + .seconds(2))
    #expect(debouncer.deadline == .distantFuture)
    debouncer.add(.link(1, .down), now: start + .seconds(3))
    debouncer.add(.link(1, .up), now: start + .seconds(3))
    #expect(debouncer.take(now: start + .seconds(4)) == change(gained: true))
    debouncer.add(.link(1, .removed), now: start + .seconds(5))
    debouncer.add(.link(1, .up), now: start + .seconds(5))
    #expect(debouncer.take(now: start + .seconds(6)) == change(gained: true))
  }

  @Test func remembersNoMoreThanItsLimits() {
    var debouncer = debouncer()
    for index in 0..<20_000 as Range<UInt32> {
      debouncer.add(.link(index, .up), now: start)
      debouncer.add(.address(.ipv4(index), isPresent: false), now: start)
    }
    let burst = debouncer.take(now: start + .seconds(1))
    #expect(burst?.vanished.count == NetworkChangeDebouncer.vanishedLimit)
    debouncer.add(.link(19_999, .up), now: start + .seconds(2))
    #expect(
      debouncer.take(now: start + .seconds(3)) == change(gained: true), "every event of a link beyond the limit counts")
    debouncer.add(.link(3, .up), now: start + .seconds(4))
    #expect(debouncer.deadline == .distantFuture)
  }
}
