import ByteStreams
import Foundation
import RESPCodec
import RedisProtocol
import RedisSupport
import TLSSupport
import TestSupport
import Testing
import Threading

@testable import Redis

/// Connections to a real server.
@Suite(.serialized, needsRedis) struct RedisConnectionTests {
  @Test func aCommandGetsItsReply() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server))
    try await run.untilReady()
    let information = try #require(run.state.ready[0].information)
    #expect(information.isPrimary && information.connectedReplicas == 0)
    #expect(await run.call("SET", "key", "a\r\nb\0c") == "OK")
    #expect(await run.call("GET", "key") == "a\r\nb\0c")
    #expect(await run.call("GET", "missing") == "nil")
    #expect(await run.call("INCR", "key") == "refused: ERR value is not an integer or out of range")
    #expect(await run.call("EVAL", "return {1, {'x'}, {}}", "0") == "[:1 [x] []]")
    #expect(await run.call("PUBLISH", "c", "m") == ":0")
  }

  @Test func tenThousandCommandsGetTheirRepliesInOrder() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server))
    try await run.untilReady()
    let wrong = Locked([String]())
    let answered = Counter()
    run.perform { owner in
      for number in 0..<10_000 {
        // Replies of several sizes, so that they are cut at many places.
        let text = "\(number):" + String(repeating: "x", count: number % 300)
        let result = owner.send(["ECHO", text]) { outcome in
          let reply = ConnectionRun.text(of: outcome)
          if reply != text { wrong.withLock { $0.append(reply) } }
          _ = answered.next()
        }
        if result != .sent { wrong.withLock { $0.append("\(result)") } }
      }
    }
    try await run.until("answered") { _ in answered.count == 10_000 }
    #expect(wrong.withLock { $0 } == [])
  }

  @Test func aLargeValueIsWrittenAndRead() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server))
    try await run.untilReady()
    let value = String(repeating: "0123456789abcdef", count: 1 << 20)
    #expect(await run.call("SET", "key", value) == "OK")
    #expect(await run.call("GET", "key") == value)
  }

  @Test func commandsWithoutRepliesAreLimitedInNumberAndBytes() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server))
    try await run.untilReady()
    let counts = Locked([0, 0, 0])
    run.perform { owner in
      func fill(_ words: [String]) -> Int {
        var sent = 0
        while owner.send(words, { _ in counts.withLock { $0[2] += 1 } }) == .sent { sent += 1 }
        return sent
      }
      let sent = fill(["PING"])
      counts.withLock { $0[0] = sent }
    }
    try await run.until("answered") { _ in counts.withLock { $0[2] == RedisPipeline.commandLimit } }
    #expect(counts.withLock { $0[0] } == RedisPipeline.commandLimit)
    run.perform { owner in
      let words = ["SET", "key", String(repeating: "x", count: RedisPipeline.byteLimit / 2)]
      var sent = 0
      while owner.send(words, { _ in }) == .sent { sent += 1 }
      counts.withLock { $0[1] = sent }
      owner.connection?.close()
    }
    try await run.until("full") { _ in counts.withLock { $0[1] } == 2 }
  }

  // MARK: Start

  @Test func authenticatesWithAPasswordAndAsAUser() async throws {
    let server = try await RedisProcess.server { _, _ in
      ["--requirepass", "p@ss:word", "--user", "anna", "on", ">other", "~*", "&*", "+@all"]
    }
    for (userinfo, reason) in [
      (":p%40ss%3Aword@", nil), ("default:p%40ss%3Aword@", nil), ("anna:other@", nil),
      (":wrong@", "Redis replied 'WRONGPASS "), ("nobody:other@", "Redis replied 'WRONGPASS "),
      ("", "Redis replied 'NOAUTH "),
    ] as [(String, String?)] {
      let run = try ConnectionRun(to: RedisEndpoint("redis://\(userinfo)127.0.0.1:\(server.port)/2"))
      if let reason {
        let ending = try await run.ending()
        #expect(ending.hasPrefix(reason) && !ending.contains("wrong@"), "\(ending)")
      } else {
        try await run.untilReady()
        #expect(await run.call("CLIENT", "INFO").contains(" db=2 "))
      }
    }
  }

  @Test func aUserMayLackAPermission() async throws {
    let server = try await RedisProcess.server { _, _ in
      ["--user", "anna", "on", ">a", "~x*", "&x*", "+@all", "-set"]
    }
    let endpoint = try RedisEndpoint("redis://anna:a@127.0.0.1:\(server.port)")
    let run = try ConnectionRun(to: endpoint)
    try await run.untilReady()
    #expect(await run.call("SET", "x", "1").hasPrefix("refused: NOPERM "))
    #expect(await run.call("GET", "x") == "nil", "the connection continues")
    let other = try ConnectionRun(to: endpoint) { $0.purpose = .subscriptions(["y"]) }
    #expect(try await other.ending().hasPrefix("Redis replied 'NOPERM "))
  }

  @Test func connectsWithTLSToAServerThatItTrusts() async throws {
    let authority = TestAuthority()
    let identity = authority.issue("IP:127.0.0.1")
    let server = try await RedisProcess.server { directory, port in
      var options = ["--port", "0", "--tls-port", "\(port)", "--tls-auth-clients", "no"]
      for (option, text) in [
        ("--tls-cert-file", identity.certificatePEM), ("--tls-key-file", identity.keyPEM),
        ("--tls-ca-cert-file", authority.certificatePEM),
      ] {
        let file = directory.appendingPathComponent(option + ".pem")
        try text.write(to: file, atomically: false, encoding: .utf8)
        options += [option, file.path]
      }
      return options
    }
    let run = try ConnectionRun(
      to: RedisEndpoint("rediss://127.0.0.1:\(server.port)", trusting: authority.certificatePEM))
    try await run.untilReady()
    let value = String(repeating: "0123456789abcdef", count: 64 << 10)
    #expect(await run.call("SET", "key", value) == "OK")
    #expect(await run.call("GET", "key") == value)
    let stranger = try ConnectionRun(
      to: RedisEndpoint("rediss://127.0.0.1:\(server.port)", trusting: TestAuthority().certificatePEM))
    #expect(try await stranger.ending().contains("TLS: "))
  }

  @Test func scriptsAreLoadedAndCalledByTheirDigest() async throws {
    let server = try await RedisProcess.server()
    let script = RedisScript("return {KEYS[1], ARGV[1], redis.call('INCR', KEYS[1])}")
    let digest = String(decoding: script.digest, as: UTF8.self)
    let run = try ConnectionRun(to: RedisEndpoint(server)) { $0.scripts = [RedisScript("return 1"), script] }
    try await run.untilReady()
    #expect(await run.call("EVALSHA", digest, "1", "k", "a") == "[k a :1]")
    // The gateway cannot use a server without the scripts. The next connection loads them.
    #expect(await run.call("SCRIPT", "FLUSH") == "OK")
    #expect(await run.call("EVALSHA", digest, "1", "k", "a").hasPrefix("refused: NOSCRIPT "))
    #expect(try await run.ending().hasPrefix("Redis replied 'NOSCRIPT "))
    #expect(await run.call("PING") == "notReady")
    let next = try ConnectionRun(to: RedisEndpoint(server)) { $0.scripts = [script] }
    try await next.untilReady()
    #expect(await next.call("EVALSHA", digest, "1", "k", "a") == "[k a :2]")
  }

  @Test func aReplicaIsRefusedAndAPrimaryThatBecomesOneEndsTheConnection() async throws {
    let primary = try await RedisProcess.server()
    let other = try await RedisProcess.server { _, _ in ["--replicaof", "127.0.0.1", "\(primary.port)"] }
    let refused = try ConnectionRun(to: RedisEndpoint(other))
    #expect(try await refused.ending().hasPrefix("the server is a replica"))
    let run = try ConnectionRun(to: RedisEndpoint(primary))
    try await run.untilReady()
    #expect(await run.call("REPLICAOF", "127.0.0.1", "\(other.port)") == "OK")
    #expect(await run.call("SET", "key", "1").hasPrefix("refused: READONLY "))
    #expect(try await run.ending().hasPrefix("Redis replied 'READONLY "))
  }

  @Test func aMemberOfAClusterIsRefused() async throws {
    // The default port of the cluster bus is in the range of ports that the kernel assigns to clients.
    let bus = try ReservedPort()
    let server = try await RedisProcess.server { _, _ in
      ["--cluster-enabled", "yes", "--cluster-port", "\(bus.number)"]
    }
    let run = try ConnectionRun(to: RedisEndpoint(server))
    #expect(try await run.ending() == "the server runs in mode 'cluster', which is not supported here")
    withExtendedLifetime(bus) {}
  }

  @Test func aFullServerRefusesOneCommand() async throws {
    let server = try await RedisProcess.server { _, _ in
      ["--maxmemory", "1", "--maxmemory-policy", "noeviction", "--min-replicas-to-write", "0"]
    }
    let run = try ConnectionRun(to: RedisEndpoint(server))
    try await run.untilReady()
    #expect(await run.call("SET", "key", "1").hasPrefix("refused: OOM "))
    #expect(await run.call("CONFIG", "SET", "maxmemory", "0", "min-replicas-to-write", "1") == "OK")
    #expect(await run.call("SET", "key", "1").hasPrefix("refused: NOREPLICAS "))
    #expect(await run.call("GET", "key") == "nil")
    #expect(await run.call("WAIT", "1", "10") == ":0")
  }

  @Test func anAddressWithoutAServerIsReported() async throws {
    let run = try ConnectionRun(to: RedisEndpoint("redis://user:hunter2@127.0.0.1:1"))
    let ending = try await run.ending()
    #expect(ending.hasPrefix("127.0.0.1:1: connect") && !ending.contains("hunter2"), "\(ending)")
  }

  // MARK: End

  @Test func aServerThatStopsTimesOutAndEveryCommandFailsOnce() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server)) { $0.commandTimeout = .milliseconds(500) }
    try await run.untilReady()
    #expect(await run.call("PING") == "PONG")
    server.signal(SIGSTOP)
    defer { server.signal(SIGCONT) }
    let outcomes = Locked([String](repeating: "", count: 100))
    run.perform { owner in
      for number in 0..<100 {
        _ = owner.send(["SET", "key", String(repeating: "x", count: 200_000)]) { outcome in
          outcomes.withLock { $0[number] += ConnectionRun.text(of: outcome) }
        }
      }
    }
    #expect(try await run.ending() == "Redis did not reply to a command in time")
    #expect(outcomes.withLock { $0 } == Array(repeating: "lost", count: 100))
    #expect(await run.call("PING") == "notReady")
  }

  @Test func aServerThatDiesLosesCommandsWithoutReplies() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server))
    try await run.untilReady()
    server.signal(SIGSTOP)
    async let outcome = run.call("INCR", "key")
    let start = ContinuousClock.now
    while await run.unansweredCommands == 0 {
      try #require(ContinuousClock.now - start < .seconds(60))
    }
    server.stop()
    #expect(await outcome == "lost")
    #expect(try await run.ending().isEmpty == false)
  }

  @Test func closingLosesCommandsWithoutRepliesAndReportsNoError() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server))
    try await run.untilReady()
    server.signal(SIGSTOP)
    defer { server.signal(SIGCONT) }
    async let outcome = run.call("PING")
    let start = ContinuousClock.now
    while await run.unansweredCommands == 0 {
      try #require(ContinuousClock.now - start < .seconds(60))
    }
    run.perform { $0.connection?.close() }
    #expect(await outcome == "lost")
    #expect(await run.call("PING") == "notReady")
    #expect(run.events == ["ready"])
  }

  // MARK: Subscriptions

  @Test func messagesOfSubscribedChannelsArrive() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server)) { $0.purpose = .subscriptions(["a", "b"]) }
    try await run.untilReady()
    #expect(run.events == ["+a", "+b", "ready"])
    let publisher = try ConnectionRun(to: RedisEndpoint(server))
    try await publisher.untilReady()
    #expect(await publisher.call("PUBLISH", "a", "1") == ":1")
    run.perform { owner in
      _ = owner.connection?.subscribe(["c"])
      _ = owner.connection?.unsubscribe(["a"])
    }
    try await run.until("changed") { $0.events.last == "-a" }
    #expect(await publisher.call("PUBLISH", "a", "2") == ":0")
    #expect(await publisher.call("PUBLISH", "c", "3") == ":1")
    try await run.until("received") { $0.events.last == "c: 3" }
    #expect(run.events == ["+a", "+b", "ready", "a: 1", "+c", "-a", "c: 3"])
    #expect(await run.call("PING") == "notReady", "no command on this connection")
  }

  @Test func manySubscriptionsAreMadeInOneStart() async throws {
    let server = try await RedisProcess.server()
    let channels = (0..<20_000).map { "n:\($0)" }
    let run = try ConnectionRun(to: RedisEndpoint(server)) { $0.purpose = .subscriptions(channels) }
    try await run.untilReady()
    #expect(run.events == channels.map { "+\($0)" } + ["ready"])
  }

  @Test func aSilentServerEndsASubscription() async throws {
    let server = try await RedisProcess.server()
    let run = try ConnectionRun(to: RedisEndpoint(server)) { $0.purpose = .subscriptions(["a"]) }
    try await run.untilReady()
    // The connection handles pings meanwhile.
    let start = ContinuousClock.now
    let observer = try ConnectionRun(to: RedisEndpoint(server))
    try await observer.untilReady()
    while !(await observer.call("INFO", "commandstats")).contains("cmdstat_ping:calls=1") {
      try #require(ContinuousClock.now - start < .seconds(60))
    }
    #expect(run.events == ["+a", "ready"])
    server.signal(SIGSTOP)
    defer { server.signal(SIGCONT) }
    #expect(try await run.ending() == "Redis did not reply to PING in time")
  }
}

extension ConnectionRun {
  fileprivate var unansweredCommands: Int {
    get async {
      await withCheckedContinuation { continuation in
        perform { continuation.resume(returning: $0.connection?.unansweredCommands ?? 0) }
      }
    }
  }
}
