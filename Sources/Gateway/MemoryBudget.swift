import API
import Configuration
import HTTPCodec
import HTTPServer
import Inbox
import Journal
import Outbox
import Sessions
import Totals
import Upstream
import WebSocketCodec
import Webhooks

/// The maximum memory that the settings allow the process to use, compared with the memory limit of its control group.
/// Above this limit, the kernel kills the process.
///
/// The sum includes the memory that settings limit. It does not include the memory of calls and consumers, whose limits
/// are fixed (docs/threat-model.md). Of the kernel's socket buffers, it includes only the memory of an idle connection.
struct MemoryBudget: Equatable {
  struct Part: Equatable {
    /// The setting that determines the size most directly.
    let setting: String
    let bytes: Int
  }

  /// Largest first.
  let parts: [Part]
  /// The sum of all parts, in bytes.
  let total: Int
  /// A warning if the settings allow more than the limit; otherwise nil.
  let warning: String?

  /// The program and its libraries, event loops and threads, without clients and sessions. A measurement with two loops
  /// gave 15 MiB. The value is about twice as much, as a margin.
  private static let process = 32 << 20
  /// An idle connection in the process, and its socket in the kernel, without TLS.
  private static let connection = (2 << 10) + 512 + (4 << 10)
  private static let secureConnection = 20 << 10
  /// A key in `IdempotencyTable`: 220 bytes, and an eighth more, since the table may exceed its limit by an eighth
  /// (`Reserve`).
  private static let idempotencyKey = 248
  /// A session with its connection and permessage-deflate.
  private static let session = 61 << 10
  /// Data on its way to and from Redis. It consists of a write of 8 MiB for several sessions, a write for a single
  /// session, and the part of a session that is being read. Each write is in memory twice: as rows, and in the output.
  private static let redis = 48 << 20
  /// Number of parts that the warning names. Other settings are rarely worth changing.
  private static let namedParts = 4

  /// - Parameters:
  ///   - limit: the limit of the control group, in bytes; nil if there is none.
  ///   - connections: maximum number of connections of clients.
  ///   - peers: maximum number of connections with other gateways, in each direction.
  init(limit: Int?, _ settings: GatewaySettings, connections: Int, peers: Int = 0) {
    let http = settings.http
    let isShared = settings.store.engine == .redis
    // An incomplete head or pipelined requests, whichever is larger.
    let perHead = max(http.limits.headBytes, http.limits.pipelinedBytes)
    var perConnection = Self.connection + perHead
    if !settings.listeners.https.isEmpty { perConnection += Self.secureConnection }
    var parts = [
      Part(setting: "http.connections", bytes: Self.product(connections, perConnection)),
      Part(
        setting: "http.management_connections",
        bytes: Self.product(http.managementConnections, Self.connection + perHead)),
      // The first of the next two parts is for bodies that clients are sending, and bodies that wait for another
      // gateway. The second is for responses that clients are receiving, and responses that arrive from another
      // gateway.
      Part(
        setting: "http.pending_body_bytes",
        bytes: Self.sum([http.pendingBodyBytes, isShared ? Reserve(limit: http.pendingBodyBytes).maximum : 0])),
      Part(
        setting: "http.unsent_bytes",
        bytes: Self.sum([http.unsentBytes, isShared ? Reserve(limit: settings.peerResponseBytes).maximum : 0])),
      Part(setting: "http.idempotency_keys", bytes: Self.product(settings.api.idempotencyKeys, Self.idempotencyKey)),
    ]
    let configured = settings.configuredSessions.map(\.configuration)
    // When this gateway reads a remote session again, clients get the previous copy until the new copy is complete. So
    // both copies are in memory.
    let copies = isShared ? 2 : 1
    let kept = Self.product(copies, Self.sum(configured.map(\.retention.bytes)))
    let total = Self.product(copies, settings.retainedBytes)
    // Sessions that clients create can use the whole of `delivery.total_bytes`.
    parts.append(
      settings.profiles.isEmpty && kept <= total
        ? Part(setting: "delivery.bytes", bytes: kept) : Part(setting: "delivery.total_bytes", bytes: total))
    parts.append(
      Part(setting: "upstream.queue.bytes", bytes: Self.sum(configured.map(\.upstream.outbox.byteReserve.maximum))))
    parts.append(
      Part(
        setting: "upstream.message_bytes",
        bytes: Self.sum(configured.map { $0.upstream.limits.messageBytes + $0.upstream.highWater + Self.session })))
    if let largest = settings.profiles.map({ Self.size(ofCreated: $0.configuration.upstream) }).max() {
      let created = settings.createdSessions
      // Without authentication, all clients are one principal.
      let count = settings.authentication.isConfigured ? created.total : min(created.total, created.perOwner)
      parts.append(
        Part(
          setting: settings.authentication.isConfigured ? "created_sessions.total" : "created_sessions.per_principal",
          bytes: Self.product(count, largest)))
    }
    let webhooks = configured.map { session in
      Self.sum(session.webhooks.map { $0.memory(messageBytes: session.upstream.limits.messageBytes) })
    }
    parts.append(Part(setting: "webhooks", bytes: Self.sum(webhooks)))
    if settings.store.engine != .memory {
      parts.append(Part(setting: "store.pending_bytes", bytes: settings.store.pendingBytes))
    }
    if peers > 0 {
      let bytes = Self.product(peers, 2 * Self.connection + perHead)
      parts.append(Part(setting: "listeners.peers", bytes: bytes))
    }
    self.parts = parts.sorted { $0.bytes > $1.bytes }
    self.total = Self.sum([Self.process, isShared ? Self.redis : 0] + parts.map(\.bytes))
    guard let limit, limit < self.total else {
      warning = nil
      return
    }
    let named = self.parts.prefix(Self.namedParts).map { "\($0.setting) (\(Self.text($0.bytes)))" }
    warning =
      "the memory limit \(Self.text(limit)) of the control group is below \(Self.text(self.total)), which the settings allow at most: "
      + "raise it or lower \(named.joined(separator: ", "))"
  }

  private static func size(ofCreated upstream: UpstreamSettings) -> Int {
    upstream.outbox.byteReserve.maximum + upstream.limits.messageBytes + upstream.highWater + session
  }

  /// Rounded up, since fractions of a MiB do not matter.
  private static func text(_ bytes: Int) -> String { "\(sum([bytes, (1 << 20) - 1]) >> 20) MiB" }

  // Every setting has a maximum, but a product of two settings may overflow.

  private static func product(_ count: Int, _ bytes: Int) -> Int {
    let (result, overflows) = count.multipliedReportingOverflow(by: bytes)
    return overflows ? .max : result
  }

  private static func sum(_ values: [Int]) -> Int {
    values.reduce(0) { sum, value in
      let (result, overflows) = sum.addingReportingOverflow(value)
      return overflows ? .max : result
    }
  }
}
