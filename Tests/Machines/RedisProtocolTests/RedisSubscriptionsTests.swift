import ByteStreams
import RESPCodec
import Testing

@testable import RedisProtocol

@Suite struct RedisSubscriptionsTests {
  private static func reply(_ kind: String, _ channel: String, _ count: Int64 = 1) -> RESPReply {
    .array([.bulk(Array(kind.utf8)), .bulk(Array(channel.utf8)), .integer(count)])
  }

  private static func message(_ channel: String, _ payload: String) -> RESPReply {
    .array([.bulk(Array("message".utf8)), .bulk(Array(channel.utf8)), .bulk(Array(payload.utf8))])
  }

  private static let pong = RESPReply.array([.bulk(Array("pong".utf8)), .bulk([])])

  /// The first word of each command, and the number of its channels.
  private static func commands(in output: inout ByteQueue) throws -> [String] {
    var reader = RESPReader()
    var commands: [String] = []
    while let command = try reader.next(from: &output)?.elements {
      commands.append("\(command[0].text ?? "") \(command.count - 1)")
    }
    return commands
  }

  @Test func changesAreConfirmedInTheirOrder() throws {
    var output = ByteQueue()
    var subscriptions = RedisSubscriptions(to: ["a", "b"], now: .zero, into: &output)
    #expect(subscriptions.change(["a"], subscribing: false, now: .zero, into: &output))
    #expect(try Self.commands(in: &output) == ["SUBSCRIBE 2", "UNSUBSCRIBE 1"])
    #expect(try subscriptions.receive(Self.reply("subscribe", "a"), now: .zero) == .subscribed("a"))
    #expect(try subscriptions.receive(Self.message("a", "x"), now: .zero) == .message(channel: "a", payload: [0x78]))
    #expect(try subscriptions.receive(Self.reply("subscribe", "b", 2), now: .zero) == .subscribed("b"))
    #expect(subscriptions.pendingChanges == 1)
    #expect(try subscriptions.receive(Self.reply("unsubscribe", "a"), now: .zero) == .unsubscribed("a"))
    #expect(subscriptions.pendingChanges == 0)
  }

  @Test func manyChannelsAreSeveralCommands() throws {
    var output = ByteQueue()
    let channels = (0..<2_001).map { "n:\($0)" }
    let subscriptions = RedisSubscriptions(to: channels, now: .zero, into: &output)
    #expect(try Self.commands(in: &output) == ["SUBSCRIBE 1000", "SUBSCRIBE 1000", "SUBSCRIBE 1"])
    #expect(subscriptions.pendingChanges == 2_001)
  }

  @Test func changesWithoutConfirmationAreLimited() {
    var output = ByteQueue()
    var subscriptions = RedisSubscriptions(to: [], now: .zero, into: &output)
    let channels = Array(repeating: "c", count: RedisSubscriptions.changeLimit)
    #expect(subscriptions.change(channels, subscribing: true, now: .zero, into: &output))
    output.removeAll()
    #expect(!subscriptions.change(["c"], subscribing: true, now: .zero, into: &output))
    #expect(output.count == 0)
  }

  @Test(arguments: [
    reply("subscribe", "other"), reply("unsubscribe", "a"), reply("psubscribe", "a"), pong, .simple("PONG"),
    .simple("OK"), .integer(1), .null, .array([]), .array([.integer(1)]), .array([.bulk(Array("message".utf8))]),
    .array([.bulk(Array("message".utf8)), .bulk([]), .integer(1)]),
  ])
  func anyOtherReplyIsAViolation(reply: RESPReply) {
    var output = ByteQueue()
    var subscriptions = RedisSubscriptions(to: ["a"], now: .zero, into: &output)
    let failure = #expect(throws: RedisFailure.self) { _ = try subscriptions.receive(reply, now: .zero) }
    #expect(failure?.description.hasPrefix("Redis sent an invalid reply: ") == true, "\(reply)")
  }

  @Test func anErrorEndsTheConnection() {
    var output = ByteQueue()
    var subscriptions = RedisSubscriptions(to: ["a"], now: .zero, into: &output)
    #expect(throws: RedisFailure.refused(RedisError("NOPERM x"))) {
      _ = try subscriptions.receive(.error("NOPERM x"), now: .zero)
    }
  }

  @Test func silenceIsInterruptedByPingsAndThenEndsTheConnection() throws {
    var output = ByteQueue()
    var subscriptions = RedisSubscriptions(to: [], now: .zero, into: &output)
    var now = MonotonicTime.zero
    for isConfirmed in [true, false] {
      #expect(subscriptions.deadline == now + .seconds(1))
      try subscriptions.timeout(now: now + .milliseconds(999), into: &output)
      #expect(output.count == 0)
      now = now + .seconds(1)
      try subscriptions.timeout(now: now, into: &output)
      #expect(try Self.commands(in: &output) == ["PING 0"])
      #expect(subscriptions.deadline == now + .seconds(2))
      try subscriptions.timeout(now: now + .milliseconds(1_999), into: &output)
      #expect(output.count == 0, "one PING at a time")
      now = now + .milliseconds(1_999)
      // Redis has a different form of this reply for connections with a subscription.
      if isConfirmed { _ = try subscriptions.receive(.simple("PONG"), now: now) }
    }
    #expect(throws: RedisFailure.timeout("Redis did not reply to PING")) {
      try subscriptions.timeout(now: now + .milliseconds(1), into: &output)
    }
  }

  /// A stopped process must not mistake its own pause for a silent server.
  @Test func afterAPauseOfThisProcessAPingIsSentFirst() throws {
    var output = ByteQueue()
    var subscriptions = RedisSubscriptions(to: [], now: .zero, into: &output)
    try subscriptions.timeout(now: .zero + .seconds(60), into: &output)
    #expect(try Self.commands(in: &output) == ["PING 0"])
    #expect(try subscriptions.receive(Self.pong, now: .zero + .seconds(61)) == nil)
    #expect(subscriptions.deadline == .zero + .seconds(62))
  }

  /// Attack: a server sends messages, and never confirms a subscription.
  @Test func aChangeMustBeConfirmedInTime() throws {
    var output = ByteQueue()
    var subscriptions = RedisSubscriptions(to: ["a", "b"], now: .zero, into: &output)
    for second in 1..<5 { _ = try subscriptions.receive(Self.message("x", ""), now: .zero + .seconds(Int64(second))) }
    try subscriptions.timeout(now: .zero + .milliseconds(4_999), into: &output)
    #expect(throws: RedisFailure.timeout("Redis did not confirm a subscription")) {
      try subscriptions.timeout(now: .zero + .seconds(5), into: &output)
    }
  }
}
