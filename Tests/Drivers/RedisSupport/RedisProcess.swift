import Foundation
import Reactor
import RedisProtocol
import Synchronization
import Testing

/// A `redis-server` or a Sentinel on a free port of 127.0.0.1, which ends with the test.
package final class RedisProcess: Sendable {
  package static let program = ["/usr/bin", "/usr/local/bin", "/usr/sbin"].map { $0 + "/redis-server" }
    .first { FileManager.default.isExecutableFile(atPath: $0) }

  package let port: UInt16
  package let directory: URL
  private let process: ChildProcess

  /// `arguments`: options of the command line. `configuration`: for a Sentinel, which needs a file that it can write.
  private init(
    port: UInt16, _ directory: URL, _ arguments: [String], configuration: String? = nil
  ) throws {
    self.port = port
    self.directory = directory
    var all = arguments + ["--logfile", "redis.log", "--dir", directory.path]
    if let configuration {
      let file = directory.appendingPathComponent("sentinel.conf")
      try configuration.write(to: file, atomically: false, encoding: .utf8)
      all = [file.path, "--sentinel"] + all
    }
    process = try ChildProcess(#require(Self.program), all)
  }

  deinit {
    kill(process.id, SIGKILL)
    process.waitUntilExit()
    try? FileManager.default.removeItem(at: directory)
  }

  /// Starts a server, and waits until it accepts connections.
  ///
  /// - Parameter makeArguments: options besides those of every test, with the directory of the server.
  package static func server(
    onPort port: UInt16? = nil, _ makeArguments: (URL, UInt16) throws -> [String] = { _, _ in [] }
  ) async throws -> RedisProcess {
    try await start(onPort: port, until: "Ready to accept connections") { directory, port in
      let arguments = try makeArguments(directory, port)
      let tcp = arguments.contains("--tls-port") ? [] : ["--port", "\(port)"]
      return try RedisProcess(
        port: port, directory, tcp + ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"] + arguments)
    }
  }

  /// Starts a replica of `primary`, and waits until it has a copy. A primary changes its replication id when its first replica connects: gateways that
  /// connect before it look at that as a loss of data, and create no session for the time of a lease.
  package static func replica(of primary: RedisProcess) async throws -> RedisProcess {
    let replica = try await server { _, _ in ["--replicaof", "127.0.0.1", "\(primary.port)"] }
    try await replica.waitForLog("MASTER <-> REPLICA sync: Finished with success")
    return replica
  }

  /// Starts a Sentinel that monitors the primary at `port` under the name `main`.
  package static func sentinel(of port: UInt16, quorum: Int = 1) async throws -> RedisProcess {
    let primary = port
    return try await start(onPort: nil, until: "+monitor master") { directory, port in
      let configuration = """
        port \(port)
        bind 127.0.0.1
        sentinel monitor main 127.0.0.1 \(primary) \(quorum)
        sentinel down-after-milliseconds main 500
        sentinel failover-timeout main 3000

        """
      return try RedisProcess(port: port, directory, [], configuration: configuration)
    }
  }

  private static func start(
    onPort chosen: UInt16?, until line: String, _ make: (URL, UInt16) throws -> RedisProcess
  ) async throws -> RedisProcess {
    var log = ""
    // Another process may take the free port first.
    for _ in 0..<5 {
      let directory = FileManager.default.temporaryDirectory.appendingPathComponent("redis-\(UUID().uuidString)")
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      let server = try make(directory, try chosen ?? freePort())
      while server.process.isRunning {
        if server.log.contains(line) { return server }
        try await Task.sleep(for: .milliseconds(5))
      }
      log = server.log
      if chosen != nil { break }
    }
    throw NotStarted(description: "redis-server ended: \(log)")
  }

  private struct NotStarted: Error, CustomStringConvertible { let description: String }

  private static func freePort() throws -> UInt16 {
    let descriptor = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), sharedPort: false)
    defer { close(descriptor) }
    return try #require(try Sockets.localAddress(of: descriptor).port)
  }

  package var log: String {
    (try? String(contentsOf: directory.appendingPathComponent("redis.log"), encoding: .utf8)) ?? ""
  }

  package var address: RedisAddress { RedisAddress(host: "127.0.0.1", port: port) }

  package func signal(_ number: Int32) { kill(process.id, number) }

  /// Kills it, and returns when it is gone.
  package func stop() {
    signal(SIGKILL)
    process.waitUntilExit()
  }

  /// Waits until the log has `text`.
  package func waitForLog(_ text: String) async throws {
    let start = ContinuousClock.now
    while !log.contains(text) {
      try #require(ContinuousClock.now - start < .seconds(60), "'\(text)' is not in the log: \(log.suffix(2_000))")
      try await Task.sleep(for: .milliseconds(5))
    }
  }
}

/// For tests that need the program.
package let needsRedis = ConditionTrait.enabled(
  if: RedisProcess.program != nil, "redis-server is not installed (scripts/setup test)")
