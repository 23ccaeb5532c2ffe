import ByteStreams
import RESPCodec
import Testing

@testable import RedisProtocol

@Suite struct RedisHandshakeTests {
  private static let server = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\n"
  private static let history = String(repeating: "0f", count: 20)
  private static let replication =
    "# Replication\r\nrole:master\r\nconnected_slaves:2\r\nmaster_replid:\(history)\r\nmaster_repl_offset:7\r\n"

  private static func bulk(_ text: String) -> RESPReply { .bulk(Array(text.utf8)) }

  /// Returns the written commands, each followed by its reply. The last element is `complete` or the failure.
  private func run(_ handshake: RedisHandshake, _ replies: RESPReply...) -> [String] {
    var handshake = handshake
    var events: [String] = []
    var rest = replies[...]
    do throws(RedisFailure) {
      while true {
        var output = ByteQueue()
        guard handshake.writeNext(into: &output) else { break }
        events.append(Self.words(of: &output))
        guard let reply = rest.popFirst() else { return events }
        try handshake.receive(reply)
      }
    } catch {
      return events + ["\(error)"]
    }
    #expect(handshake.isComplete && rest.isEmpty)
    return events + ["complete"]
  }

  private static func words(of output: inout ByteQueue) -> String {
    var reader = RESPReader()
    let command = try? reader.next(from: &output)
    #expect(output.count == 0, "one command at a time")
    return (command?.elements ?? []).compactMap(\.text).joined(separator: " ")
  }

  @Test func aConnectionWithoutAPasswordBeginsWithINFO() throws {
    let handshake = RedisHandshake(with: .primary)
    #expect(
      run(handshake, Self.bulk(Self.server), Self.bulk(Self.replication)) == [
        "INFO server", "INFO replication", "complete",
      ])
  }

  @Test func everyStepIsTakenInOrder() throws {
    let scripts = [RedisScript("return 1"), RedisScript("return 2")]
    // Computed by redis-cli SCRIPT LOAD.
    #expect(String(decoding: scripts[0].digest, as: UTF8.self) == "e0e1f9fabfc9d4800c877a703b823ac0578ff8db")
    let handshake = RedisHandshake(
      with: .primary, RedisCredentials(user: "anna", password: "secret"), database: 3, scripts: scripts)
    let events = run(
      handshake, .simple("OK"), .simple("OK"), Self.bulk(Self.server), Self.bulk(Self.replication),
      .bulk(scripts[0].digest), .bulk(scripts[1].digest))
    #expect(
      events == [
        "AUTH anna secret", "SELECT 3", "INFO server", "INFO replication", "SCRIPT LOAD return 1",
        "SCRIPT LOAD return 2",
        "complete",
      ])
    let short = run(RedisHandshake(with: .primary, RedisCredentials(password: "secret")))
    #expect(short == ["AUTH secret"])
  }

  @Test func theServerIsDescribed() throws {
    var handshake = RedisHandshake(with: .primary)
    try handshake.receive(Self.bulk(Self.server))
    #expect(handshake.information == nil)
    try handshake.receive(Self.bulk(Self.replication))
    let information = try #require(handshake.information)
    #expect(information.version == "7.0.15" && information.runID == "abc" && information.isPrimary)
    #expect(information.replicationID == Self.history && information.connectedReplicas == 2)
  }

  @Test func onlyTheModeOfASentinelIsRequested() {
    let sentinel = RedisHandshake(with: .sentinel, RedisCredentials(password: "s"))
    #expect(
      run(sentinel, .simple("OK"), Self.bulk("redis_version:7.0.15\r\nredis_mode:sentinel\r\n")) == [
        "AUTH s", "INFO server", "complete",
      ])
    #expect(run(RedisHandshake(with: .sentinel), Self.bulk(Self.server)).last?.contains("'standalone'") == true)
  }

  @Test(
    arguments: [
      ("redis_version:7.0.15\r\nrun_id:a\r\nredis_mode:cluster", nil, "the server runs in mode 'cluster'"),
      ("redis_version:7.0.15\r\nrun_id:a\r\nredis_mode:sentinel", nil, "the server runs in mode 'sentinel'"),
      ("redis_version:6.0.16\r\nrun_id:a\r\nredis_mode:standalone", replication, "the server has version 6.0.16"),
      ("redis_version:x\r\nrun_id:a\r\nredis_mode:standalone", replication, "the server has version x"),
      ("redis_version:7\r\nrun_id:a\r\nredis_mode:standalone", replication, "the server has version 7"),
      ("nothing", nil, "INFO has no valid field 'redis_mode'"),
      (server, "role:slave\r\nmaster_replid:\(history)", "the server is a replica"),
      (server, "role:master", "INFO has no valid field 'master_replid'"),
      (server, "role:master\r\nmaster_replid:\(history)0", "INFO has no valid field 'master_replid'"),
      (server, "", "INFO has no valid field 'role'"),
    ] as [(String, String?, String)])
  func refusesAServerThatCannotBeUsed(server: String, replication: String?, failure: String) {
    let replies = run(RedisHandshake(with: .primary), Self.bulk(server), Self.bulk(replication ?? ""))
    #expect(replies.last?.hasPrefix(failure) == true, "\(replies)")
  }

  @Test(arguments: ["6.2.0", "6.10.1", "7.2.4", "255.255.255"])
  func laterVersionsAreAccepted(version: String) throws {
    let server = "redis_version:\(version)\r\nrun_id:a\r\nredis_mode:standalone"
    #expect(try RedisServerInformation(server: server, replication: Self.replication).version == version)
  }

  /// Valkey reports the version of Redis that it is compatible with, and its own name of the mode.
  @Test func valkeyIsAccepted() throws {
    let fields = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nrun_id:a\r\nserver_mode:"
    let information = try RedisServerInformation(server: fields + "standalone", replication: Self.replication)
    #expect(information.version == "7.2.4")
    #expect(throws: RedisFailure.unsuitable(.mode("cluster"))) {
      _ = try RedisServerInformation(server: fields + "cluster", replication: Self.replication)
    }
  }

  @Test func anErrorOrAnUnexpectedReplyEndsTheHandshake() {
    let secured = RedisHandshake(with: .primary, RedisCredentials(password: "secret"))
    #expect(run(secured, .error("WRONGPASS no")).last == "Redis replied 'WRONGPASS no'")
    #expect(run(secured, .integer(1)).last == "Redis sent an invalid reply: the reply to AUTH is not OK")
    #expect(run(RedisHandshake(with: .primary), .null).last?.hasSuffix("the reply to INFO is not a string") == true)
    let loading = RedisHandshake(with: .primary, scripts: [RedisScript("x")])
    let replies = run(
      loading, Self.bulk(Self.server), Self.bulk(Self.replication), .bulk(RedisScript("y").digest))
    #expect(replies.last == "the server stored a script under another digest")
  }
}
