import TestSupport
import Testing

@testable import UpstreamSession

/// Two connections to a model upstream, which broadcasts each number on both at once, and responds to requests. The
/// connections are read in turns of any length, with pings like a driver's.
@Suite struct OverlapSimulation {
  private enum Frame {
    case push(UInt64)
    case pong(UInt64)
  }

  private static let response: UInt64 = 1_000_000

  private struct World {
    var fixture = FilterFixture()
    var random: SeededGenerator
    /// Frames on the older and the newer connection that the session has not read yet.
    var wires: [[Frame]] = [[], []]
    var isSubscribed = [true, false]
    var isOpen = [true, true]
    var broadcasts: UInt64 = 0
    var responses = 0
    var counter: UInt64 = 0

    func generation(_ side: Int) -> Generation { side == 0 ? FilterFixture.old : FilterFixture.new }

    mutating func broadcast() {
      broadcasts += 1
      for side in 0...1 where isOpen[side] && isSubscribed[side] { wires[side].append(.push(broadcasts)) }
    }

    mutating func respond(_ bytes: UInt64, on side: Int) {
      responses += 1
      wires[side].append(.push(bytes))
    }

    mutating func ping(_ side: Int) -> UInt64 {
      counter += 1
      fixture.filter.pingSent(generation(side), counter)
      wires[side].append(.pong(counter))
      return counter
    }

    /// Reads one frame. Returns true if it is the pong `awaited`.
    mutating func read(_ side: Int, until awaited: UInt64 = 0) -> Bool {
      guard !wires[side].isEmpty else { return false }
      switch wires[side].removeFirst() {
      case .push(let number): fixture.push(number, from: generation(side))
      case .pong(let counter):
        fixture.pong(counter, on: generation(side))
        return counter == awaited
      }
      return false
    }

    /// Reads and broadcasts at random. One step in four is a call of `other`.
    mutating func run(_ steps: Int, _ other: (inout World) -> Void) {
      for _ in 0..<steps {
        switch Int.random(in: 0..<4, using: &random) {
        case 0: broadcast()
        case 1: _ = read(0)
        case 2: _ = read(1)
        default: other(&self)
        }
      }
    }

    /// Reads one connection until the pong to a ping that is sent now, and the other connection at random.
    mutating func awaitPong(_ side: Int) {
      let awaited = ping(side)
      while !read(side, until: awaited) {
        if Bool.random(using: &random) { broadcast() }
        if Bool.random(using: &random) { _ = read(1 - side) }
      }
    }
  }

  /// - Parameter isLate: whether the old connection delivers responses even after its pong.
  @Test(arguments: [false, true])
  func losesNothingAndDuplicatesNoBroadcast(isLate: Bool) {
    for seed in 0..<2_000 as Range<UInt64> {
      var world = World(random: SeededGenerator(seed: seed))
      // If the upstream is late, the response must be a known repetition. A new response could not be distinguished
      // from a broadcast.
      if isLate { for _ in 0..<2 { world.fixture.passedBefore(Self.response) } }
      world.run(10) { $0.respond(Self.response, on: 0) }
      world.isSubscribed[1] = true
      world.run(10) { $0.respond(Self.response, on: 0) }
      world.awaitPong(0)
      world.awaitPong(1)
      world.fixture.filter.newerStartedSending()
      world.fixture.write()
      world.run(60) { world in
        switch Int.random(in: 0..<4, using: &world.random) {
        case 0 where isLate: world.respond(Self.response, on: 0)
        case 1: _ = world.ping(0)
        case 2: _ = world.ping(1)
        default: world.respond(Self.response, on: 1)
        }
      }
      world.isOpen[0] = false
      while !world.wires[0].isEmpty { _ = world.read(0) }
      let last = world.ping(1)
      world.fixture.end(FilterFixture.old)
      world.run(10) { $0.respond(Self.response, on: 1) }
      while !world.wires[1].isEmpty { _ = world.read(1, until: last) }

      let got = world.fixture.passed
      let numbers = got.filter { $0 != Self.response }
      #expect(numbers == (1...world.broadcasts).map { $0 }, "seed \(seed): broadcasts, in their order")
      #expect(got.count - numbers.count == world.responses, "seed \(seed): responses")
      #expect(world.fixture.filter.isOver)
    }
  }

  /// Without client messages on the newer connection, the filter can also distinguish equal broadcasts.
  @Test func deliversEachOfManyEqualBroadcasts() {
    for seed in 0..<2_000 as Range<UInt64> {
      var world = World(random: SeededGenerator(seed: seed))
      world.isSubscribed[1] = true
      var sent = 0
      for _ in 0..<80 {
        switch Int.random(in: 0..<4, using: &world.random) {
        case 0:
          sent += 1
          for side in 0...1 { world.wires[side].append(.push(7)) }
        case 1: _ = world.read(0)
        case 2: _ = world.read(1)
        default: _ = world.ping(Int.random(in: 0...1, using: &world.random))
        }
      }
      while !world.wires[0].isEmpty { _ = world.read(0) }
      _ = world.ping(1)
      world.fixture.end(FilterFixture.old)
      while !world.wires[1].isEmpty { _ = world.read(1) }
      #expect(world.fixture.passed.count == sent, "seed \(seed)")
    }
  }
}
