import ByteStreams
import RESPCodec
import TestSupport
import Testing

@testable import RedisProtocol

@Suite struct PrimarySearchTests {
  private static func waits(_ step: PrimarySearch.Step) -> TimeSpan? {
    if case .wait(let time) = step { time } else { nil }
  }

  @Test func eachSentinelIsQueriedOncePerRound() {
    var random = SeededGenerator(seed: 1)
    var search = PrimarySearch(sentinels: 3)
    for _ in 0..<20 {
      #expect((0..<3).map { _ in search.nextStep(using: &random) } == [.ask(0), .ask(1), .ask(2)])
      let wait = Self.waits(search.nextStep(using: &random))
      #expect(wait.map { $0 >= .milliseconds(50) && $0 <= .milliseconds(500) } == true)
    }
  }

  @Test func theNextSearchBeginsWithTheSentinelThatKnewThePrimary() {
    var random = SeededGenerator(seed: 1)
    var search = PrimarySearch(sentinels: 3)
    _ = search.nextStep(using: &random)
    _ = search.nextStep(using: &random)
    search.noteSuccess(now: .zero)
    search.begin(now: .zero + .seconds(60))
    #expect((0..<3).map { _ in search.nextStep(using: &random) } == [.ask(1), .ask(0), .ask(2)])
  }

  /// Attack: a server accepts each connection and closes it at once.
  @Test func connectionsThatEndAtOnceAreFollowedByGrowingWaits() {
    var random = SeededGenerator(seed: 1)
    var search = PrimarySearch(sentinels: 1)
    var now = MonotonicTime.zero
    var waits: [TimeSpan] = []
    search.begin(now: now)
    #expect(search.nextStep(using: &random) == .ask(0))
    for _ in 0..<50 {
      search.noteSuccess(now: now)
      now = now + .milliseconds(999)
      search.begin(now: now)
      if let wait = Self.waits(search.nextStep(using: &random)) { waits.append(wait) }
      #expect(search.nextStep(using: &random) == .ask(0))
    }
    #expect(waits.count == 50 && waits.reduce(.zero, +) > .seconds(8))
    search.noteSuccess(now: now)
    search.begin(now: now + PrimarySearch.stableAfter)
    #expect(search.nextStep(using: &random) == .ask(0))
    let wait = Self.waits(search.nextStep(using: &random))
    #expect(wait.map { $0 <= .milliseconds(100) } == true, "the growth begins again")
  }

  @Test func anAddressThatFailedIsTriedAgainInTheNextRound() {
    var random = SeededGenerator(seed: 1)
    var search = PrimarySearch(sentinels: 2)
    let address = RedisAddress(host: "h", port: 1)
    _ = search.nextStep(using: &random)
    #expect(search.shouldTry(address))
    search.noteFailure(of: address)
    _ = search.nextStep(using: &random)
    #expect(!search.shouldTry(address) && search.shouldTry(RedisAddress(host: "h", port: 2)))
    _ = search.nextStep(using: &random)
    #expect(search.shouldTry(address))
  }

  @Test(arguments: [
    (RESPReply.null, RedisFailure.unsuitable(.noPrimary("main"))),
    (.array([]), .violation("the address of the primary is not valid")),
    (.array([.bulk(Array("h".utf8)), .bulk(Array("0".utf8))]), .violation("the address of the primary is not valid")),
    (
      .array([.bulk(Array("h".utf8)), .bulk(Array("65536".utf8))]),
      .violation("the address of the primary is not valid")
    ),
    (
      .array([.bulk(Array("a\0b".utf8)), .bulk(Array("1".utf8))]), .violation("the address of the primary is not valid")
    ),
    (.array([.bulk([]), .bulk(Array("1".utf8))]), .violation("the address of the primary is not valid")),
    (.simple("OK"), .violation("the address of the primary is not valid")),
  ])
  func aReplyWithoutAnAddressIsRefused(reply: RESPReply, failure: RedisFailure) {
    #expect(throws: failure) { try SentinelAnswer.address(in: reply, of: "main") }
  }

  @Test func addressesAreRead() throws {
    let reply = RESPReply.array([.bulk(Array("::1".utf8)), .bulk(Array("6379".utf8))])
    #expect(try SentinelAnswer.address(in: reply, of: "main") == RedisAddress(host: "::1", port: 6379))
    let payload = Array("main 10.0.0.1 6379 10.0.0.2 6380".utf8)
    #expect(SentinelAnswer.newAddress(in: payload, of: "main") == RedisAddress(host: "10.0.0.2", port: 6380))
    #expect(SentinelAnswer.newAddress(in: payload, of: "other") == nil)
    #expect(SentinelAnswer.newAddress(in: Array("main 10.0.0.1".utf8), of: "main") == nil)
  }
}
