import ByteStreams
import Dialing
import LoopbackSupport
import Reactor
import Synchronization
import Testing
import WebSocketCodec

@testable import Upstream

/// A server on its own loop that handles each connection by the next step of a script. The last step also handles all
/// later connections.
final class ScriptedUpstream: Sendable {
  enum Step: Sendable {
    /// Upgrades and echoes every message.
    case echo
    /// Upgrades and only reads.
    case listen
    /// Upgrades, then sends these bytes.
    case upgradeThenSend([UInt8])
    /// Upgrades, sends these bytes and resets the connection.
    case upgradeThenReset([UInt8])
    /// Responds to the upgrade request with these bytes and closes the connection.
    case respond(String)
    /// Sends nothing.
    case silence
    /// Reads the request and resets the connection.
    case reset
    /// Upgrades and never reads again.
    case deaf
    /// Upgrades, and reads only after the test has called `read()`.
    case listenAfterRead
    /// Upgrades, reads some bytes, closes with 1009 and drops the rest.
    case refuseAsTooLarge(after: Int)
    /// Upgrades, reads some bytes, and resets the connection.
    case resetAfter(Int)
  }

  struct Seen: Sendable {
    var connections = 0
    var requests: [String] = []
    var messages: [[UInt8]] = []
    var closes: [UInt16?] = []
  }

  private let server: LoopbackServer
  private let seenState: Mutex<Seen>
  private let script: Mutex<[Step]>
  private let mayRead = Atomic(false)

  init(_ script: Step...) throws {
    server = try LoopbackServer()
    seenState = Mutex(Seen())
    self.script = Mutex(script)
    server.serve { [self] channel in
      note { $0.connections += 1 }
      return Peer(self, channel, nextStep())
    }
  }

  var port: UInt16 { server.port }
  var url: String { "ws://127.0.0.1:\(port)/chat?token=secret" }

  var seen: Seen { seenState.withLock { $0 } }

  func stop() { server.stop() }

  /// Makes connections of the step `listenAfterRead` read.
  func read() { mayRead.store(true, ordering: .releasing) }

  fileprivate var isToldToRead: Bool { mayRead.load(ordering: .acquiring) }

  fileprivate func note(_ change: (inout Seen) -> Void) { seenState.withLock { change(&$0) } }

  fileprivate func nextStep() -> Step {
    script.withLock { $0.count > 1 ? $0.removeFirst() : $0[0] }
  }

  private final class Peer: LoopTask {
    let upstream: ScriptedUpstream
    let channel: Channel
    let step: Step
    var input = ByteQueue()
    var output = ByteQueue()
    var socket = WebSocketConnection(role: .server)
    var random = SystemRandomNumberGenerator()

    init(_ upstream: ScriptedUpstream, _ channel: Channel, _ step: Step) {
      self.upstream = upstream
      self.channel = channel
      self.step = step
    }

    func run() async {
      if case .silence = step { return }
      guard let key = await readRequest() else { return }
      switch step {
      case .silence: break
      case .reset: channel.reset()
      case .respond(let text):
        output.append(text)
        await flush()
        channel.close()
      case .upgradeThenSend(let bytes):
        upgrade(key)
        output.append(bytes)
        await flush()
        await converse(echoes: false)
      case .upgradeThenReset(let bytes):
        upgrade(key)
        output.append(bytes)
        await flush()
        channel.reset()
      case .deaf:
        upgrade(key)
        await flush()
      case .listenAfterRead:
        upgrade(key)
        await flush()
        let nothing = LoopEvent(loop: channel.loop)
        while !upstream.isToldToRead { _ = await nothing.wait(until: channel.loop.now + .milliseconds(1)) }
        await converse(echoes: false)
      case .refuseAsTooLarge(let count):
        upgrade(key)
        await flush()
        await read(count)
        output.append([0x88, 0x02, 0x03, 0xF1])
        await flush()
        await read(.max)
        channel.close()
      case .resetAfter(let count):
        upgrade(key)
        await flush()
        await read(count)
        channel.reset()
      case .echo, .listen:
        upgrade(key)
        await flush()
        if case .echo = step { await converse(echoes: true) } else { await converse(echoes: false) }
      }
    }

    private func readRequest() async -> String? {
      while true {
        guard await channel.readable() == .ready else { return nil }
        switch channel.receive(into: &input, atMost: 4096) {
        case .endOfStream, .failed: return nil
        case .bytes, .wouldBlock: break
        }
        let text = input.bytes.text()
        guard let end = text.firstRange(of: "\r\n\r\n") else { continue }
        input.consume(text[..<end.upperBound].utf8.count)
        upstream.note { $0.requests.append(text) }
        let line = text.split(separator: "\r\n").first { $0.lowercased().hasPrefix("sec-websocket-key:") }
        // A CONNECT request has no key.
        return line.map { String($0.dropFirst(18).drop { $0 == " " }) } ?? ""
      }
    }

    private func upgrade(_ key: String) {
      _ = ServerHandshake.accept(key: key, extensions: nil, into: &output)
      socket.receive { swap(&$0, &input) }
    }

    private func flush() async {
      while !output.isEmpty {
        switch channel.send(output.bytes) {
        case .bytes(let count): output.consume(count)
        case .wouldBlock: guard await channel.writable() == .ready else { return }
        case .endOfStream, .failed: return
        }
      }
    }

    /// Reads and discards this many bytes, or all.
    private func read(_ wanted: Int) async {
      var count = 0
      while count < wanted, await channel.readable() == .ready {
        switch channel.receive(into: &input, atMost: 65_536) {
        case .bytes(let more): count += more
        case .endOfStream, .failed: return
        case .wouldBlock: break
        }
        input.removeAll()
      }
    }

    private func converse(echoes: Bool) async {
      while true {
        do {
          while let event = try socket.nextEvent() {
            switch event {
            case .message(let kind):
              let payload = [UInt8](copying: socket.payload)
              upstream.note { $0.messages.append(payload) }
              if echoes { socket.sendMessage(kind, payload.span, using: &random, into: &output) }
            case .close(let code, reason: _): upstream.note { $0.closes.append(code) }
            case .ping, .pong: break
            }
          }
        } catch {
          Issue.record("the gateway violated the protocol: \(error)")
        }
        socket.writeReplies(using: &random, into: &output)
        await flush()
        if socket.shouldEndTransport {
          channel.close()
          return
        }
        guard await channel.readable() == .ready else { return }
        var result = IOResult.wouldBlock
        socket.receive { result = channel.receive(into: &$0, atMost: 65_536) }
        switch result {
        case .endOfStream, .failed:
          channel.close()
          return
        case .bytes, .wouldBlock: break
        }
      }
    }
  }
}
