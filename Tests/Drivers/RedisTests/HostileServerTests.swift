import ByteStreams
import RESPCodec
import RedisProtocol
import Testing
import Threading

@testable import Redis

/// Servers that violate the protocol, or only pretend to work.
@Suite(.serialized) struct HostileServerTests {
  /// Connects, sends GET, and returns the outcome and the reason of the end.
  private func get(
    from server: ScriptedRedis, _ change: (inout RedisConnectionSettings) -> Void = { _ in }
  ) async throws -> (outcome: String, ending: String) {
    let run = try ConnectionRun(to: RedisEndpoint(server.url)) { change(&$0) }
    try await run.untilReady()
    let outcome = await run.call("GET", "key")
    return (outcome, try await run.ending())
  }

  @Test(arguments: [
    ("HTTP/1.1 400 Bad Request\r\n\r\n", "lost", "Redis sent an invalid reply: a value begins with byte 72"),
    ("$5\r\nhelloworld", "lost", "Redis sent an invalid reply: a string is not followed by CRLF"),
    (
      String(repeating: "*1\r\n", count: 100), "lost",
      "Redis sent an invalid reply: a reply has arrays nested deeper than 8 levels"
    ),
    ("*999999999\r\n", "lost", "Redis sent an invalid reply: a reply has more than 262144 values"),
    ("$999999999\r\n", "lost", "Redis sent an invalid reply: a reply has more than 33554432 bytes"),
    ("$1\r\na\r\n$1\r\nb\r\n", "a", "Redis sent an invalid reply: a reply without a command"),
    ("+OK\r\n-ERR max number of clients reached\r\n", "OK", "Redis replied 'ERR max number of clients reached'"),
    ("-MASTERDOWN x\r\n", "refused: MASTERDOWN x", "Redis replied 'MASTERDOWN x'"),
    ("-LOADING x\r\n", "refused: LOADING x", "Redis replied 'LOADING x'"),
  ])
  func anInvalidReplyEndsTheConnection(text: String, outcome: String, ending: String) async throws {
    let server = try ScriptedRedis { $0[0] == "GET" ? .send(text) : nil }
    let result = try await get(from: server)
    #expect(result.outcome == outcome && result.ending.hasPrefix(ending), "\(result)")
    server.stop()
  }

  @Test func endlessStringsAndLinesEndTheConnection() async throws {
    for (text, ending) in [
      ("+" + String(repeating: "x", count: 60_000), "a line has more than 65536 bytes"),
      (":1\r\n", "a reply without a command"),
      ("*2\r\n$20000\r\n" + String(repeating: "x", count: 20_000) + "\r\n*1\r\n", "a reply has more than 65536 bytes"),
    ] {
      let server = try ScriptedRedis { $0[0] == "GET" ? .flood(text) : nil }
      let result = try await get(from: server) { $0.limits.replyBytes = 65_536 }
      #expect(result.ending.contains(ending), "\(result)")
      server.stop()
    }
  }

  @Test func anIncompleteReplyIsLost() async throws {
    let server = try ScriptedRedis { $0[0] == "GET" ? .close : nil }
    let result = try await get(from: server)
    #expect(result.outcome == "lost" && result.ending == "the server closed the connection", "\(result)")
    server.stop()
  }

  /// A reply that begins and does not end must not keep the command waiting.
  @Test func aReplyThatStallsTimesOut() async throws {
    for action in [ScriptedRedis.Action.send("*2\r\n:1\r\n$5\r\nhel"), .nothing, .stall] {
      let server = try ScriptedRedis { $0[0] == "GET" ? action : nil }
      let result = try await get(from: server) { $0.commandTimeout = .milliseconds(200) }
      #expect(result.outcome == "lost" && result.ending == "Redis did not reply to a command in time", "\(result)")
      server.stop()
    }
  }

  @Test(arguments: ["INFO server", "INFO replication", "SELECT 1", "AUTH secret", "SCRIPT LOAD"])
  func aStartThatStallsTimesOut(command: String) async throws {
    let server = try ScriptedRedis { ($0.prefix(2).joined(separator: " ")) == command ? .nothing : nil }
    let url = "redis://:secret@127.0.0.1:\(server.port)/1"
    let run = try ConnectionRun(to: RedisEndpoint(url)) {
      $0.startTimeout = .milliseconds(300)
      // With a script, the connection also waits for the reply to SCRIPT LOAD.
      $0.scripts = [RedisScript("return 1")]
    }
    let ending = try await run.ending()
    #expect(ending == "the connection to 127.0.0.1:\(server.port) was not ready in time")
    #expect(server.commands.last.map { $0.prefix(2).joined(separator: " ") } == command)
    server.stop()
  }

  @Test(arguments: [
    (["INFO", "server"], ScriptedRedis.information(version: "5.0.14"), "the server has version 5.0.14"),
    (["INFO", "server"], ScriptedRedis.information(mode: "cluster"), "the server runs in mode 'cluster'"),
    (["INFO", "server"], "-LOADING Redis is loading the dataset in memory\r\n", "Redis replied 'LOADING "),
    (["INFO", "server"], "-DENIED Redis is running in protected mode\r\n", "Redis replied 'DENIED "),
    (["INFO", "replication"], "*0\r\n", "Redis sent an invalid reply: the reply to INFO is not a string"),
    (["SCRIPT", "LOAD", "return 1"], "$1\r\nx\r\n", "the server stored a script under another digest"),
  ])
  func aServerThatCannotBeUsedIsRefused(command: [String], reply: String, ending: String) async throws {
    let server = try ScriptedRedis { $0 == command ? .send(reply) : nil }
    let run = try ConnectionRun(to: RedisEndpoint(server.url)) { $0.scripts = [RedisScript("return 1")] }
    let reason = try await run.ending()
    #expect(reason.hasPrefix(ending), "\(reason)")
    #expect(run.events.count == 1)
    server.stop()
  }

  @Test func aSubscriptionThatIsConfirmedWronglyEndsTheConnection() async throws {
    for reply in ["*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:1\r\n", "+OK\r\n", "*1\r\n:1\r\n"] {
      let server = try ScriptedRedis { $0[0] == "SUBSCRIBE" ? .send(reply) : nil }
      let run = try ConnectionRun(to: RedisEndpoint(server.url)) { $0.purpose = .subscriptions(["a"]) }
      #expect(try await run.ending().hasPrefix("Redis sent an invalid reply: "))
      server.stop()
    }
  }

  /// A completion may close the connection or send another command.
  @Test func completionsMayUseTheConnection() async throws {
    let server = try ScriptedRedis { _ in nil }
    let run = try ConnectionRun(to: RedisEndpoint(server.url))
    try await run.untilReady()
    let outcomes = Locked([String]())
    run.perform { owner in
      let note: @Sendable (RedisOutcome) -> Void = { outcome in
        outcomes.withLock { $0.append(ConnectionRun.text(of: outcome)) }
      }
      _ = owner.send(["ONE"]) { outcome in
        note(outcome)
        _ = owner.send(["THREE"], note)
        owner.connection?.close()
        if owner.send(["FOUR"], note) != .notReady { outcomes.withLock { $0.append("sent") } }
      }
      _ = owner.send(["TWO"], note)
    }
    try await run.until("completed") { _ in outcomes.withLock { $0.count } == 3 }
    #expect(outcomes.withLock { $0 } == ["OK", "lost", "lost"])
    server.stop()
  }
}
