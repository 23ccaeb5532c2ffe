import ByteStreams
import Foundation
import Journal
import JournalSupport
import Outbox
import RedisSupport
import Replication
import Testing

@testable import RedisStore

/// Measures and prints the time that an append takes in the thread of Redis. Runs only with DRAWBRIDGE_REDIS_COSTS=1.
@Suite(needsRedis, .enabled(if: ProcessInfo.processInfo.environment["DRAWBRIDGE_REDIS_COSTS"] != nil))
struct CostTests {
  @Test func theTimeOfRedisForAppends() async throws {
    let server = try await RedisProcess.server()
    let client = try TestClient(server)
    // The interval is so long that no heartbeat is counted.
    let gateway = try TestGateway(server) {
      $0.times = TenureTimes(lease: .seconds(600), margin: .seconds(1), interval: .seconds(300))
    }
    try await gateway.becomeHolder()
    var number: UInt64 = 1
    for count in [1, 10, 100] as [UInt64] {
      try await measure("\(count) pushes of 200 bytes", client) {
        let entries = (number..<number + count).map { JournalEntry.push(RandomSession.push($0, size: 200)) }
        number += count
        try await gateway.store(entries)
      }
    }
    var message: UInt64 = 1
    try await measure("a message: accepted and intended, then settled", client) {
      let payload = ByteString([UInt8](repeating: 7, count: 200))
      try await gateway.store([
        .accepted(
          StoredMessage(number: message, payload: payload, kind: .text, topic: nil, deadline: nil, time: 0)),
        .intended(through: message),
      ])
      try await gateway.store([
        .settled(
          StoredSettlement(first: message, last: message, state: 3, reason: 0, time: 0, releasesPayloads: true))
      ])
      message += 1
    }
    await gateway.close()
  }

  private func measure(_ what: String, _ client: TestClient, _ body: () async throws -> Void) async throws {
    _ = try await client.call("CONFIG", "RESETSTAT")
    let runs = 300
    for _ in 0..<runs { try await body() }
    let text = try await client.call("INFO", "commandstats")
    let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix("cmdstat_evalsha:") } ?? ""
    print("\(what): \(runs) runs, \(line)")
  }
}
