import ByteStreams
import Dialing
import Foundation
import Glibc
import Reactor
import TestSupport
import WebSocketCodec

@testable import Upstream

/// The upstream. It receives messages, sends pushes, and responds to pings if `responds` is true. Each connection is a
/// pair of sockets in this process.
final class ScriptedPeer {
  /// Whether it accepts connections.
  var isReachable = true
  /// Whether it responds to pings and to the opening handshake.
  var responds = true
  private(set) var pushes = 0
  private var connections: [Connection] = []
  private let ledger: Ledger
  private var random: SeededGenerator

  private final class Connection {
    let descriptor: Int32
    /// The number of the gateway.
    let gateway: Int
    var input = ByteQueue()
    var output = ByteQueue()
    var socket = WebSocketConnection(role: .server)
    var isOpen = false
    var hasEnded = false

    init(_ descriptor: Int32, of gateway: Int) {
      self.descriptor = descriptor
      self.gateway = gateway
    }

    deinit { if !hasEnded { close(descriptor) } }
  }

  init(_ ledger: Ledger, seed: UInt64) {
    self.ledger = ledger
    random = SeededGenerator(seed: seed)
  }

  /// Returns the gateway's end of a new connection; nil if the connection is refused.
  func connect(from gateway: Int) -> Int32? {
    guard isReachable else { return nil }
    var pair: [Int32] = [0, 0]
    let kind = Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
    guard socketpair(AF_UNIX, kind, 0, &pair) == 0 else { return nil }
    connections.append(Connection(pair[1], of: gateway))
    return pair[0]
  }

  /// Whether a push can be sent now.
  var isOpen: Bool { connections.contains { $0.isOpen && $0.socket.canSend } }

  /// Sends a push on the newest connection.
  func push() {
    guard let connection = connections.last(where: { $0.isOpen && $0.socket.canSend }) else { return }
    pushes += 1
    connection.socket.sendMessage(.text, Array("p\(pushes)".utf8).span, using: &random, into: &connection.output)
    _ = flush(connection)
  }

  /// Breaks all connections. Data that was not read is lost.
  func breakConnections() {
    for connection in connections { end(connection) }
    connections = []
    ledger.disruptions += 1
  }

  /// Called when a gateway has died. Data that it has sent still arrives.
  func disconnect(_ gateway: Int) {
    for connection in connections where connection.gateway == gateway {
      while read(connection) {}
      end(connection)
    }
    connections.removeAll { $0.hasEnded }
  }

  /// Reads and writes as much as possible. Returns whether it has read or written anything.
  func turn() -> Bool {
    var isBusy = false
    for connection in connections {
      if read(connection) { isBusy = true }
      if flush(connection) { isBusy = true }
    }
    connections.removeAll { $0.hasEnded }
    return isBusy
  }

  private func read(_ connection: Connection) -> Bool {
    guard !connection.hasEnded else { return false }
    var bytes = [UInt8](repeating: 0, count: 16_384)
    let count = recv(connection.descriptor, &bytes, bytes.count, 0)
    guard count > 0 else {
      if count == 0 || errno != EAGAIN { end(connection) }
      return false
    }
    if connection.isOpen {
      connection.socket.receive(bytes.span.extracting(first: count))
    } else {
      connection.input.append(bytes.span.extracting(first: count))
      upgrade(connection)
    }
    do {
      while connection.isOpen, let event = try connection.socket.nextEvent() {
        if case .message = event { received(connection.socket.payload.text(), on: connection) }
      }
    } catch {
      ledger.note("the gateway violates WebSocket: \(error)")
    }
    if connection.socket.shouldEndTransport { end(connection) }
    return true
  }

  /// Responds to a call.
  private func received(_ text: String, on connection: Connection) {
    guard let call = try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any],
      let name = call["method"] as? String, let id = call["id"] as? String
    else { return ledger.received(text.filter { $0 != "\"" }) }
    ledger.received(name)
    let reply = "{\"jsonrpc\":\"2.0\",\"id\":\"\(id)\",\"result\":\"\(name)\"}"
    guard connection.socket.canSend else { return }
    connection.socket.sendMessage(.text, Array(reply.utf8).span, using: &random, into: &connection.output)
  }

  private func upgrade(_ connection: Connection) {
    let text = connection.input.bytes.text()
    guard let head = text.firstRange(of: "\r\n\r\n") else { return }
    connection.input.consume(text[..<head.upperBound].utf8.count)
    let line = text.split(separator: "\r\n").first { $0.lowercased().hasPrefix("sec-websocket-key:") }
    let key = line.map { String($0.dropFirst(18).drop { $0 == " " }) } ?? ""
    _ = ServerHandshake.accept(key: key, extensions: nil, into: &connection.output)
    connection.socket.receive { swap(&$0, &connection.input) }
    connection.isOpen = true
    ledger.connected()
  }

  private func flush(_ connection: Connection) -> Bool {
    guard !connection.hasEnded, responds else { return false }
    connection.socket.writeReplies(using: &random, into: &connection.output)
    guard !connection.output.isEmpty else { return false }
    let bytes = connection.output.copyBytes()
    let count = send(connection.descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    guard count > 0 else {
      if errno != EAGAIN { end(connection) }
      return false
    }
    connection.output.consume(count)
    return true
  }

  private func end(_ connection: Connection) {
    guard !connection.hasEnded else { return }
    connection.hasEnded = true
    close(connection.descriptor)
  }
}

/// Connects a gateway to the upstream.
final class ScriptedDialer: Dialer {
  private let peer: ScriptedPeer
  private let gateway: Int
  private let loop: LoopContext

  init(_ peer: ScriptedPeer, from gateway: Int, loop: LoopContext) {
    self.peer = peer
    self.gateway = gateway
    self.loop = loop
  }

  func dial(
    _ destination: DialDestination, _ cancellation: Cancellation, _ input: inout ByteQueue, report: (DialPhase) -> Void
  ) async throws(DialError) -> Transport {
    report(.connecting)
    guard let descriptor = peer.connect(from: gateway), let channel = try? Channel(descriptor: descriptor, loop: loop)
    else { throw .failed(.connecting, .network, "refused") }
    return Transport(channel, destination.permission)
  }
}
