import Foundation
import RedisProtocol
import Synchronization
import TestSupport
import Testing

/// A `redis-server` or a Sentinel on a reserved port of 127.0.0.1. It ends with the test.
package final class RedisProcess: Sendable {
  package static let program = ["/usr/bin", "/usr/local/bin", "/usr/sbin"].map { $0 + "/redis-server" }
    .first { FileManager.default.isExecutableFile(atPath: $0) }

  package let directory: URL
  private let reservation: ReservedPort
  private let process: ChildProcess

  /// `arguments` are options of the command line. `configuration` is for a Sentinel, which needs a writable file.
  private init(
    _ reservation: ReservedPort, _ directory: URL, _ arguments: [String], configuration: String? = nil
  ) throws {
    self.reservation = reservation
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
  /// - Parameters:
  ///   - predecessor: a stopped server, whose port the new server gets.
  ///   - makeArguments: returns further options, for the directory and port of the server.
  package static func server(
    after predecessor: RedisProcess? = nil, _ makeArguments: (URL, UInt16) throws -> [String] = { _, _ in [] }
  ) async throws -> RedisProcess {
    let reservation = try predecessor?.reservation ?? ReservedPort()
    return try await start(until: "Ready to accept connections") { directory in
      let arguments = try makeArguments(directory, reservation.number)
      let tcp = arguments.contains("--tls-port") ? [] : ["--port", "\(reservation.number)"]
      return try RedisProcess(
        reservation, directory, tcp + ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"] + arguments)
    }
  }

  /// Starts a replica of `primary`, and waits until it has a copy. A primary changes its replication id when its first
  /// replica connects. A gateway that has connected before takes this change for a loss of data, and creates no session
  /// for the duration of a tenure.
  package static func replica(of primary: RedisProcess) async throws -> RedisProcess {
    let replica = try await server { _, _ in ["--replicaof", "127.0.0.1", "\(primary.port)"] }
    try await replica.waitForLog("MASTER <-> REPLICA sync: Finished with success")
    return replica
  }

  /// Starts a Sentinel that monitors the primary at `port` under the name `main`.
  package static func sentinel(of port: UInt16, quorum: Int = 1) async throws -> RedisProcess {
    let reservation = try ReservedPort()
    return try await start(until: "+monitor master") { directory in
      let configuration = """
        port \(reservation.number)
        bind 127.0.0.1
        sentinel monitor main 127.0.0.1 \(port) \(quorum)
        sentinel down-after-milliseconds main 500
        sentinel failover-timeout main 3000

        """
      return try RedisProcess(reservation, directory, [], configuration: configuration)
    }
  }

  private static func start(
    until line: String, _ make: (URL) throws -> RedisProcess
  ) async throws -> RedisProcess {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent("redis-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let server = try make(directory)
    while server.process.isRunning {
      if server.log.contains(line) { return server }
      try await Task.sleep(for: .milliseconds(5))
    }
    throw NotStarted(description: "redis-server ended: \(server.log)")
  }

  private struct NotStarted: Error, CustomStringConvertible { let description: String }

  package var port: UInt16 { reservation.number }

  package var log: String {
    (try? String(contentsOf: directory.appendingPathComponent("redis.log"), encoding: .utf8)) ?? ""
  }

  package var address: RedisAddress { RedisAddress(host: "127.0.0.1", port: port) }

  package func signal(_ number: Int32) { kill(process.id, number) }

  /// Kills the process, and returns after its end.
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

/// A condition for tests that need the program `redis-server`.
package let needsRedis = ConditionTrait.enabled(
  if: RedisProcess.program != nil, "redis-server is not installed (scripts/setup test)")
