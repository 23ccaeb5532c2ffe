import ByteStreams
import LoopbackSupport
import RESPCodec
import Reactor
import RedisProtocol
import RedisSupport
import TLSEngine
import Testing
import Threading
import Dialing

@testable import Redis

/// A connection, or a connector and the connections that it opens, on a loop of its own. Records everything that they
/// report.
final class ConnectionRun: Sendable {
  struct State: Sendable {
    /// Every event of the connection, and failed attempts, as text.
    var events: [String] = []
    /// The address and information of each connection that was ready.
    var ready: [(address: RedisAddress, information: RedisServerInformation?)] = []
  }

  private let shared = Locked(State())
  private let loop: EventLoop

  /// Connects once.
  convenience init(to endpoint: RedisEndpoint, _ change: (inout RedisConnectionSettings) -> Void = { _ in }) throws {
    let settings = Self.settings(change)
    try self.init { loop, owner in
      let dialer = NetworkDialer(resolver: Resolver(), loop: loop)
      let connection = RedisConnection(to: endpoint, settings, dialer: dialer, loop: loop, owner: owner)
      owner.connection = connection
      connection.start()
    }
  }

  /// Connects until it succeeds.
  convenience init(
    connecting target: RedisConnector.Target, _ change: (inout RedisConnectionSettings) -> Void = { _ in }
  ) throws {
    let settings = Self.settings(change)
    try self.init { loop, owner in
      let dialer = NetworkDialer(resolver: Resolver(), loop: loop)
      let connector = RedisConnector(to: target, settings, dialer: dialer, loop: loop) { address, failure in
        owner.run.note { $0.events.append("failed: \(address.port) \(failure)") }
      }
      owner.connector = connector
      connector.connect(for: owner)
    }
  }

  /// Subscribes to the notifications of failovers.
  convenience init(watching sentinels: [UInt16]) throws {
    let endpoints = try sentinels.map { try RedisEndpoint("redis://127.0.0.1:\($0)") }
    try self.init { loop, owner in
      let dialer = NetworkDialer(resolver: Resolver(), loop: loop)
      let run = owner.run
      let watch = SentinelWatch(endpoints, of: "main", dialer: dialer, loop: loop) { [weak run] sentinel, address in
        run?.note { $0.events.append("\(sentinel): \(address.host):\(address.port)") }
      }
      owner.watch = watch
      watch.start()
    }
  }

  private static func settings(_ change: (inout RedisConnectionSettings) -> Void) -> RedisConnectionSettings {
    var settings = RedisConnectionSettings()
    // Other programs may keep the machine busy.
    settings.startTimeout = .seconds(30)
    change(&settings)
    return settings
  }

  private init(_ start: @escaping @Sendable (LoopContext, Owner) -> Void) throws {
    loop = try EventLoop(index: 0)
    loop.submit { [self] loop in
      let owner = Owner(self)
      loop.userObject = owner
      start(loop, owner)
      return nil
    }
  }

  deinit {
    loop.stop()
    loop.join()
  }

  var state: State { shared.withLock { $0 } }
  var events: [String] { state.events }

  fileprivate func note(_ change: (inout State) -> Void) { shared.withLock { change(&$0) } }

  /// Runs `body` on the loop.
  func perform(_ body: @escaping @Sendable (Owner) -> Void) {
    loop.submit { loop in
      if let owner = loop.userObject as? Owner { body(owner) }
      return nil
    }
  }

  /// Sends a command, and waits for its reply or its failure, as text.
  func call(_ words: String...) async -> String {
    await withCheckedContinuation { continuation in
      perform { owner in
        let result = owner.send(words) { continuation.resume(returning: Self.text(of: $0)) }
        if result != .sent { continuation.resume(returning: "\(result)") }
      }
    }
  }

  func until(
    _ what: String, within limit: Duration = patience, _ fact: (State) -> Bool
  ) async throws {
    try await LoopbackSupport.until("\(what): \(events)", within: limit) { fact(state) }
  }

  func untilReady(_ count: Int = 1) async throws { try await until("ready") { $0.ready.count >= count } }

  /// Waits for the end, and returns its reason.
  func ending() async throws -> String {
    try await until("ended") { $0.events.last?.hasPrefix("ended: ") == true }
    return String(events.last?.dropFirst(7) ?? "")
  }

  static func text(of outcome: RedisOutcome) -> String {
    switch outcome {
    case .reply(let reply): text(of: reply)
    case .refused(let error): "refused: \(error)"
    case .lost: "lost"
    }
  }

  static func text(of reply: RESPReply) -> String {
    switch reply {
    case .simple(let text): text
    case .error(let text): "-\(text)"
    case .integer(let value): ":\(value)"
    case .bulk(let bytes): String(decoding: bytes, as: UTF8.self)
    case .null: "nil"
    case .array(let elements): "[\(elements.map(text).joined(separator: " "))]"
    }
  }

  final class Owner: RedisConnectionOwner {
    fileprivate let run: ConnectionRun
    var watch: SentinelWatch?
    var connection: RedisConnection?
    var connector: RedisConnector?

    init(_ run: ConnectionRun) { self.run = run }

    func send(_ words: [String], _ completion: @escaping RedisPipeline.Completion) -> RedisConnection.SendResult {
      guard let connection else { return .notReady }
      return connection.send(words.map { .text($0) }, completion: completion)
    }

    func connection(_ connection: RedisConnection, reports event: RedisConnection.Event) {
      switch event {
      case .ready(let information):
        self.connection = connection
        run.note {
          $0.events.append("ready")
          $0.ready.append((connection.endpoint.address, information))
        }
      case .subscription(.subscribed(let channel)): run.note { $0.events.append("+\(channel)") }
      case .subscription(.unsubscribed(let channel)): run.note { $0.events.append("-\(channel)") }
      case .subscription(.message(let channel, let payload)):
        run.note { $0.events.append("\(channel): \(String(decoding: payload, as: UTF8.self))") }
      case .ended(let failure): run.note { $0.events.append("ended: \(failure)") }
      }
    }
  }
}

extension RedisEndpoint {
  /// - Parameter caPEM: the trusted authorities, for `rediss`.
  init(_ url: String, trusting caPEM: String? = nil) throws {
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    var tls = TLSClientSettings()
    tls.trust = .init(systemStore: false, caPEM: caPEM)
    try self.init(RedisURL(url), tls, with: &cache)
  }

  init(_ server: RedisProcess) throws { try self.init("redis://127.0.0.1:\(server.port)") }
}
