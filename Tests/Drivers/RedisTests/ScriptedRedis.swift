import ByteStreams
import LoopbackSupport
import RESPCodec
import Reactor
import Testing
import Threading

/// A server on its own loop that accepts every handshake, and then does what a test says.
final class ScriptedRedis: Sendable {
  enum Action: Sendable {
    case send(String)
    /// Sends these bytes again and again.
    case flood(String)
    case close
    /// Stops reading.
    case stall
    case nothing
  }

  private let server: LoopbackServer
  private let respond: @Sendable ([String]) -> Action?
  private let received = Locked<[[String]]>([])

  /// - Parameter respond: returns the reaction to a command; nil for the usual reply of Redis.
  init(_ respond: @escaping @Sendable ([String]) -> Action?) throws {
    self.respond = respond
    server = try LoopbackServer()
    server.serve { [self] in Peer(self, $0) }
  }

  var port: UInt16 { server.port }
  var url: String { "redis://127.0.0.1:\(port)" }

  /// The commands that have arrived.
  var commands: [[String]] { received.withLock { $0 } }

  func stop() { server.stop() }

  fileprivate func action(after command: [String]) -> Action {
    received.withLock { $0.append(command) }
    return respond(command) ?? .send(Self.reply(to: command))
  }

  static func bulk(_ text: String) -> String { "$\(text.utf8.count)\r\n\(text)\r\n" }

  static func information(mode: String = "standalone", version: String = "7.0.15") -> String {
    bulk("redis_version:\(version)\r\nredis_mode:\(mode)\r\nrun_id:\(String(repeating: "a", count: 40))\r\n")
  }

  private static func reply(to command: [String]) -> String {
    switch command {
    case ["INFO", "server"]: information()
    case ["INFO", "replication"]:
      bulk("role:master\r\nconnected_slaves:0\r\nmaster_replid:\(String(repeating: "b", count: 40))\r\n")
    case ["PING"]: "+PONG\r\n"
    default: "+OK\r\n"
    }
  }

  private final class Peer: LoopTask {
    let server: ScriptedRedis
    let channel: Channel
    var input = ByteQueue()
    var reader = RESPReader()

    init(_ server: ScriptedRedis, _ channel: Channel) {
      self.server = server
      self.channel = channel
    }

    func run() async {
      while await channel.readable() == .ready {
        switch channel.receive(into: &input, atMost: 65_536) {
        case .bytes: break
        case .wouldBlock: continue
        case .endOfStream, .failed: return channel.close()
        }
        while let command = try? reader.next(from: &input) {
          switch server.action(after: (command.elements ?? []).compactMap(\.text)) {
          case .nothing: break
          case .send(let text): guard await send(text) else { return channel.close() }
          case .flood(let text): while await send(text) {}
          case .close: return channel.close()
          case .stall: return
          }
        }
      }
    }

    /// Returns false if the client has closed the connection.
    private func send(_ text: String) async -> Bool {
      var rest = Array(text.utf8)[...]
      while !rest.isEmpty {
        switch channel.send(Array(rest).span) {
        case .bytes(let count): rest = rest.dropFirst(count)
        case .wouldBlock: guard await channel.writable() == .ready else { return false }
        case .endOfStream, .failed: return false
        }
      }
      return true
    }
  }
}
