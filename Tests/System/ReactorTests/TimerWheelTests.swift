import TestSupport
import Testing

@testable import Reactor

@Suite struct TimerWheelTests {
  /// Compares the wheel with a simple list, for random deadlines from the next tick to days ahead.
  @Test(arguments: [1, 2, 3, 4] as [UInt64])
  func firesTheSameTimersAsASimpleList(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    var wheel = TimerWheel<Int>(now: 1_000)
    var model: [Int: UInt64] = [:]
    var handles: [Int: TimerWheel<Int>.Handle] = [:]
    var now: UInt64 = 1_000
    for step in 0..<20_000 {
      switch generator.next() % 10 {
      case 0..<5:
        let reach = UInt64(1) << (generator.next() % 28)
        let deadline = now + generator.next() % reach
        handles[step] = wheel.schedule(at: deadline, target: step, token: step)
        model[step] = max(deadline, now + 1)
      case 5..<7:
        if let victim = model.keys.randomElement(using: &generator), let handle = handles[victim] {
          let wasSet = wheel.cancel(handle)
          #expect(wasSet)
          model[victim] = nil
        }
      default:
        now += generator.next() % (UInt64(1) << (generator.next() % 21))
        var expired: [TimerWheel<Int>.Expired] = []
        wheel.advance(to: now, into: &expired)
        let due = model.filter { $0.value <= now }
        #expect(Set(expired.map(\.token)) == Set(due.keys))
        #expect(expired.count == due.count)
        let order = expired.compactMap { model[$0.token] }
        #expect(order == order.sorted())
        for key in due.keys { model[key] = nil }
      }
      let count = wheel.count
      #expect(count == model.count)
      if let wake = wheel.nextWake(), let first = model.values.min() { #expect(wake <= first && wake > now) }
    }
  }

  @Test func cancellingAFiredTimerDoesNothing() {
    var wheel = TimerWheel<Int>(now: 0)
    let old = wheel.schedule(at: 5, target: 1, token: 1)
    var expired: [TimerWheel<Int>.Expired] = []
    wheel.advance(to: 10, into: &expired)
    let fresh = wheel.schedule(at: 20, target: 2, token: 2)
    #expect(expired.count == 1)
    let cancelledOld = wheel.cancel(old)
    let cancelledFresh = wheel.cancel(fresh)
    #expect(!cancelledOld && cancelledFresh)
  }
}
