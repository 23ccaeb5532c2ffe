import API
import HTTPCodec
import HTTPServer
import Inbox
import Journal
import Outbox
import Sessions
import Testing
import Upstream
import WebSocketCodec
import Webhooks

@testable import Configuration
@testable import Gateway

@Suite struct MemoryBudgetTests {
  /// Settings with the default session only.
  private func settings(_ change: (inout GatewaySettings) throws -> Void = { _ in }) throws -> GatewaySettings {
    var settings = GatewaySettings()
    settings.session.upstream.url = try WebSocketURL("ws://x/")
    try change(&settings)
    return settings
  }

  private func budget(
    limit: Int? = nil, connections: Int = 16_384, _ change: (inout GatewaySettings) throws -> Void = { _ in }
  ) throws -> MemoryBudget {
    MemoryBudget(limit: limit, try settings(change), connections: connections)
  }

  /// Two webhooks.
  private func webhooks(concurrency: Int) throws -> [WebhookSettings] {
    var webhook = WebhookSettings(name: "a", url: try HTTPURL("https://example.org/"))
    webhook.concurrency = concurrency
    return [webhook, webhook]
  }

  private func bytes(_ setting: String, of budget: MemoryBudget) -> Int? {
    budget.parts.first { $0.setting == setting }?.bytes
  }

  @Test func withoutALimitThereIsNoWarning() throws {
    #expect(try budget().warning == nil)
    #expect(try budget(limit: 1 << 40).warning == nil)
  }

  @Test func theWarningHasTheFiguresAndTheLargestSettings() throws {
    let budget = try budget(limit: 256 << 20)
    #expect(
      budget.warning
        == "the memory limit 256 MiB of the control group is below \((budget.total >> 20) + 1) MiB, which the settings allow at most: "
        + "raise it or lower http.connections (1128 MiB), http.pending_body_bytes (256 MiB), http.unsent_bytes (256 MiB), "
        + "http.idempotency_keys (248 MiB)")
    #expect(try self.budget(limit: budget.total).warning == nil)
    #expect(try self.budget(limit: budget.total - 1).warning != nil)
  }

  /// The memory for responses of other gateways is limited, but not below the largest response.
  @Test func theLargestResponseOfAnotherGatewayFits() throws {
    func bytes(_ change: (inout GatewaySettings) throws -> Void) throws -> Int {
      try settings { settings in
        settings.http.unsentBytes = 64 << 20
        settings.session.upstream.limits.messageBytes = 1 << 20
        try change(&settings)
      }.peerResponseBytes
    }
    let small = 10_000 * 256 + (64 << 10)
    #expect(try bytes { $0.http.unsentBytes = 256 << 20 } == 256 << 20)
    // Responses of a receive at its limits, of a receive with one push of control characters, and of a batch with its
    // receipts.
    #expect(try bytes { _ in } == (64 << 20) + small)
    #expect(try bytes { $0.session.upstream.limits.messageBytes = 16 << 20 } == (96 << 20) + small)
    #expect(try bytes { $0.api.batchMessages = 1_000_000 } == 384_000_000 + (64 << 10))
    let base = try budget { $0.http.unsentBytes = 64 << 20 }
    let shared = try budget { settings in
      settings.http.unsentBytes = 64 << 20
      settings.store.engine = .redis
    }
    #expect(self.bytes("http.unsent_bytes", of: base) == 64 << 20)
    #expect(self.bytes("http.unsent_bytes", of: shared) == (64 << 20) + ((96 << 20) + small) / 8 * 9)
  }

  @Test func eachSettingCounts() throws {
    let base = try budget().total
    func added(_ change: (inout GatewaySettings) throws -> Void) throws -> Int { try budget(change).total - base }
    #expect(try added { $0.http.managementConnections += 10 } == 10 * (6_656 + (64 << 10)))
    #expect(try added { $0.http.pendingBodyBytes += 1_000 } == 1_000)
    #expect(try added { $0.http.unsentBytes += 1_000 } == 1_000)
    #expect(try added { $0.api.idempotencyKeys += 10 } == 2_480)
    #expect(try added { $0.session.retention.bytes += 1_000 } == 1_000)
    #expect(try added { $0.session.upstream.outbox.maximumBytes += 8_000 } == 9_000)
    #expect(try added { $0.session.upstream.limits.messageBytes += 1_000 } == 1_000)
    #expect(try added { $0.http.limits.pipelinedBytes += 1 } == 16_384 + 256)
    #expect(try added { $0.http.limits.headBytes = (64 << 10) + 1 } == 16_384 + 256)
    #expect(try added { $0.listeners.https = $0.listeners.http } == 16_384 * (20 << 10))
    #expect(try added { $0.store.engine = .sqlite } == 64 << 20)
    // Pushes, bodies and responses twice, including the reserved eighth, and the data on its way to Redis.
    #expect(try added { $0.store.engine = .redis } == (64 + 64 + 2 * 288 + 48) << 20)
    #expect(try added { $0.session.webhooks = try webhooks(concurrency: 1) } == 2 * (16 << 20))
    #expect(try added { $0.session.webhooks = try webhooks(concurrency: 64) } == 2 * (32 << 20))
  }

  @Test func otherGatewaysHaveConnections() throws {
    let settings = try settings()
    let alone = MemoryBudget(limit: nil, settings, connections: 10)
    let shared = MemoryBudget(limit: nil, settings, connections: 10, peers: 10)
    #expect(shared.total - alone.total == 10 * (2 * 6_656 + (64 << 10)))
  }

  @Test func pushesHaveTheTotalOfAllSessionsAtMost() throws {
    #expect(try bytes("delivery.bytes", of: budget()) == 64 << 20)
    let large = try budget { $0.session.retention.bytes = 1 << 30 }
    #expect(bytes("delivery.bytes", of: large) == nil)
    #expect(bytes("delivery.total_bytes", of: large) == 512 << 20)
  }

  @Test func sessionsThatClientsCreateCountByTheirNumber() throws {
    func withProfile(_ change: @escaping (inout GatewaySettings) -> Void = { _ in }) throws -> MemoryBudget {
      try budget {
        var profile = SessionProfile(name: "market")
        profile.configuration.upstream.outbox.maximumBytes = 1_000_000
        profile.configuration.upstream.limits.messageBytes = 1_000_000
        $0.add(profile)
        change(&$0)
      }
    }
    let size = 2_125_000 + (256 << 10) + (61 << 10)
    let anyone = try withProfile()
    #expect(bytes("created_sessions.per_principal", of: anyone) == 100 * size)
    #expect(bytes("delivery.total_bytes", of: anyone) == 512 << 20)
    let known = try withProfile { $0.authentication.tokens = "/tokens" }
    #expect(bytes("created_sessions.total", of: known) == 10_000 * size)
  }

  @Test func hugeProductsDoNotOverflow() throws {
    let budget = try budget(limit: 1, connections: .max) { $0.api.idempotencyKeys = .max }
    #expect(budget.total == .max)
    #expect(budget.warning?.contains("8796093022207 MiB") == true)
  }
}
