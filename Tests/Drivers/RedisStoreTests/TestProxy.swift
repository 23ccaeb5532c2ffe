import Foundation
import Host
import LoopbackSupport
import RedisSupport
import Testing
import Threading

/// A proxy to a server, which loses data as a test requires. Each direction of a connection has a thread.
final class TestProxy: Sendable {
  private struct State {
    var target: UInt16
    var isFrozen = false
    /// The connection ends at the next command with this text. The proxy passes the command only if `isExecuted`, and
    /// never the reply.
    var lost: (text: [UInt8], isExecuted: Bool)?
    /// The server sides of connections whose next reply is not passed.
    var losing: Set<Int32> = []
    /// After a command with this text, no reply is passed on its connection.
    var delayed: [UInt8]?
    /// The server sides of connections on which no reply is passed.
    var delaying: Set<Int32> = []
    var descriptors: Set<Int32> = []
    /// After a command with this text, nothing is passed any more.
    var freezing: [UInt8]?
    /// The largest number of times that this text was passed to the server at once.
    var counted: (text: [UInt8], most: Int)?
  }

  /// A port without a server. The system assigns no port below 1024 to a server that asks for any port.
  static let noServer: UInt16 = 1

  private let state: Locked<State>
  private let listener: Int32
  let port: UInt16

  init(to target: UInt16) throws {
    state = Locked(State(target: target))
    listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    let bound = SocketAddress.ipv4(0x7F00_0001, port: 0).withKernelAddress { [listener] in bind(listener, $0, $1) }
    try #require(bound == 0 && listen(listener, 64) == 0)
    port = try #require(try Sockets.localAddress(of: listener).port)
    Thread.detachNewThread { [self] in accept() }
  }

  deinit { close(listener) }

  private func accept() {
    while true {
      let client = Glibc.accept(listener, nil, nil)
      guard client >= 0 else { return }
      guard let server = connection(to: state.withLock { $0.target }) else {
        close(client)
        continue
      }
      guard !state.withLock({ $0.isFrozen }) else {
        close(client)
        close(server)
        continue
      }
      state.withLock { $0.descriptors.formUnion([client, server]) }
      Thread.detachNewThread { [self] in pass(from: client, to: server, areReplies: false) }
      Thread.detachNewThread { [self] in
        pass(from: server, to: client, areReplies: true)
        end(client, server)
      }
    }
  }

  private func pass(from source: Int32, to target: Int32, areReplies: Bool) {
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = recv(source, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      while state.withLock({
        $0.descriptors.contains(source) && ($0.isFrozen || areReplies && $0.delaying.contains(source))
      }) { usleep(1_000) }
      let isLost = state.withLock { state in
        if areReplies { return state.losing.remove(source) != nil }
        if let (text, most) = state.counted {
          state.counted = (text, max(most, Self.count(text, in: buffer[..<count])))
        }
        if let text = state.delayed, buffer[..<count].firstRange(of: text) != nil {
          state.delayed = nil
          state.delaying.insert(target)
        }
        guard let lost = state.lost, buffer[..<count].firstRange(of: lost.text) != nil else { return false }
        state.lost = nil
        if lost.isExecuted { state.losing.insert(target) }
        return !lost.isExecuted
      }
      if isLost { break }
      // Set before the command is passed, so that no reply is passed.
      state.withLock { state in
        guard !areReplies, let text = state.freezing, buffer[..<count].firstRange(of: text) != nil else { return }
        (state.freezing, state.isFrozen) = (nil, true)
      }
      guard send(target, buffer, count, Int32(MSG_NOSIGNAL)) == count else { break }
    }
    shutdown(source, Int32(SHUT_RDWR))
    shutdown(target, Int32(SHUT_RDWR))
  }

  private func end(_ client: Int32, _ server: Int32) {
    state.withLock {
      $0.descriptors.subtract([client, server])
      $0.losing.remove(server)
      $0.delaying.remove(server)
    }
    usleep(10_000)
    close(client)
    close(server)
  }

  /// Passes nothing any more, and accepts no connections.
  func freeze() { state.withLock { $0.isFrozen = true } }

  /// Passes the next command with this text, and then nothing any more.
  func freeze(after text: [UInt8]) { state.withLock { $0.freezing = text } }

  /// After the next command with this text, passes no reply on its connection.
  func delay(after text: String) { state.withLock { $0.delayed = Array(text.utf8) } }

  var isDelaying: Bool { state.withLock { !$0.delaying.isEmpty } }

  func endDelay() { state.withLock { $0.delaying = [] } }

  var isFrozen: Bool { state.withLock { $0.isFrozen } }

  func thaw() { state.withLock { $0.isFrozen = false } }

  /// Ends the connection at the next command with this text: without passing the reply, or without passing the command
  /// if it must not be executed.
  func lose(_ text: [UInt8], isExecuted: Bool = true) { state.withLock { $0.lost = (text, isExecuted) } }

  /// From now on, counts how many times this text is in commands that are sent together.
  func count(_ text: String) { state.withLock { $0.counted = (Array(text.utf8), 0) } }

  var mostCounted: Int { state.withLock { $0.counted?.most ?? 0 } }

  private static func count(_ text: [UInt8], in bytes: ArraySlice<UInt8>) -> Int {
    var (rest, count) = (bytes, 0)
    while let range = rest.firstRange(of: text) {
      rest = rest[range.upperBound...]
      count += 1
    }
    return count
  }

  /// Ends all connections. New connections lead to another server.
  func redirect(to port: UInt16) {
    let open = state.withLock { state in
      state.target = port
      return state.descriptors
    }
    for descriptor in open { shutdown(descriptor, Int32(SHUT_RDWR)) }
  }
}

/// Sends single commands to a server, to change its data for a test.
struct TestClient {
  private let port: UInt16

  init(_ server: RedisProcess) throws { port = server.port }

  /// Returns the raw reply.
  func call(_ words: String...) async throws -> String { try await run(words) }

  func integer(_ words: String...) async throws -> Int {
    let reply = try await run(words)
    return try #require(Int(reply.dropFirst().prefix { $0.isNumber }), "\(reply)")
  }

  func until(_ words: String..., fact: (String) -> Bool) async throws {
    var reply = ""
    try await LoopbackSupport.until(reply) {
      reply = try await run(words)
      return fact(reply)
    }
  }

  private func run(_ words: [String]) async throws -> String {
    let descriptor = try #require(connection(to: port))
    defer { close(descriptor) }
    var command = "*\(words.count)\r\n"
    for word in words { command += "$\(word.utf8.count)\r\n\(word)\r\n" }
    let bytes = Array(command.utf8)
    try #require(send(descriptor, bytes, bytes.count, 0) == bytes.count)
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    let count = recv(descriptor, &buffer, buffer.count, 0)
    return String(decoding: buffer.prefix(max(0, count)), as: UTF8.self)
  }
}

/// Connects to a server on this machine. Returns nil if that fails.
private func connection(to port: UInt16) -> Int32? {
  let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
  let result = SocketAddress.ipv4(0x7F00_0001, port: port).withKernelAddress { connect(descriptor, $0, $1) }
  if result == 0 { return descriptor }
  close(descriptor)
  return nil
}
