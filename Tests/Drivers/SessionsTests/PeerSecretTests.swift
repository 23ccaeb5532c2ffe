import ByteStreams
import Logging
import Metrics
import Reactor
import Redis
import RedisProtocol
import RedisStore
import RedisSupport
import Sessions
import TLSEngine
import Testing
import Threading
import Dialing

/// The secret by which gateways recognise each other, with a real server.
@Suite(needsRedis) struct PeerSecretTests {
  /// A gateway becomes a holder only after it serves requests. By then the store may be connected and have read the
  /// secret.
  @Test func theSecretIsUsedBeforeTheGatewayTakesSessions() async throws {
    let server = try await RedisProcess.server()
    let loop = try EventLoop(index: 0)
    let secret = Locked<String?>(nil)
    let sessions = SharedSessions([], usesSecret: { text in secret.withLock { $0 = text } })
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    let endpoint = try RedisEndpoint(
      try RedisURL("redis://127.0.0.1:\(server.port)"), TLSClientSettings(), with: &cache)
    let store = RedisStore.start(
      RedisStoreSettings(.server(endpoint)), on: loop, delegate: sessions, logger: Logger(level: .error, format: .text),
      metrics: MetricsRegistry()
    ) { NetworkDialer(resolver: Resolver(), loop: $0) }
    let start = ContinuousClock.now
    while secret.withLock({ $0 }) == nil {
      try #require(ContinuousClock.now - start < .seconds(60), "there is no secret: \(store.state)")
      try await Task.sleep(for: .milliseconds(1))
    }
    loop.stop()
    loop.join()
  }
}
