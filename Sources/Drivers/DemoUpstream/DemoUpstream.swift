import ByteStreams
import HTTPCodec
import Host
import Reactor
import WebSocketCodec

/// A WebSocket server for trying out the gateway. It echoes every message and sends a tick at a fixed interval. At the
/// path `/socket.io/` it is a Socket.IO server. It runs its own loop.
package final class DemoUpstream: Sendable {
  /// The address it listens on: 127.0.0.1 with a free port.
  package let address: SocketAddress
  private let loop: EventLoop

  package init(tickEvery interval: TimeSpan = .seconds(5)) throws(SystemError) {
    let descriptor = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: false)
    address = try Sockets.localAddress(of: descriptor)
    loop = try EventLoop(index: 0)
    loop.submit { context in
      guard let listener = try? Channel(descriptor: descriptor, loop: context) else { return nil }
      return Acceptor(listener: listener, interval: interval)
    }
  }

  /// Stops the loop and waits for its thread to end.
  package func stop() {
    loop.stop()
    loop.join()
  }

  private final class Acceptor: LoopTask {
    private let listener: Channel
    private let interval: TimeSpan

    init(listener: Channel, interval: TimeSpan) {
      self.listener = listener
      self.interval = interval
    }

    func run() async {
      while await listener.readable() == .ready {
        guard case .connection(let descriptor, _) = Sockets.accept(from: listener),
          let channel = try? Channel(descriptor: descriptor, loop: listener.loop)
        else { continue }
        listener.loop.spawn(DemoConnection(channel: channel, interval: interval))
      }
    }
  }
}

/// One connection to the demo. After the opening handshake, it echoes messages and sends ticks until the connection
/// closes.
private final class DemoConnection: LoopTask, TimerTarget {
  private let channel: Channel
  private let interval: TimeSpan
  private var socket = WebSocketConnection(role: .server)
  private var output = OutputQueue()
  private var tick: UInt64 = 0
  private var timer: LoopTimer?
  private var isSocketIO = false

  init(channel: Channel, interval: TimeSpan) {
    self.channel = channel
    self.interval = interval
  }

  func run() async {
    if await upgrade() { await echo() }
    if let timer { channel.loop.cancel(timer) }
    channel.close()
  }

  private func upgrade() async -> Bool {
    var http = HTTPServerConnection()
    while true {
      guard await receive(into: { http.receive($0) }) else { return false }
      guard let event = try? http.nextEvent() else { continue }
      guard event == .head, let key = http.request.fields.first("sec-websocket-key") else { return false }
      let extensions = http.request.fields.first(.secWebSocketExtensions)?.text()
      var compression: MessageCompression.Settings?
      output.withText { text in
        compression = ServerHandshake.accept(key: key.text(), extensions: extensions, into: &text)
      }
      socket = WebSocketConnection(role: .server, compression: compression)
      isSocketIO = http.request.path.equals("/socket.io/")
      if isSocketIO { send([DemoSocketIO.opening(interval)]) }
      timer = channel.loop.schedule(at: channel.loop.now + interval, self)
      return await flush()
    }
  }

  private func echo() async {
    while await receive(into: { socket.receive($0) }) {
      do throws(WebSocketProtocolError) {
        while let event = try socket.nextEvent() { handle(event) }
      } catch {
        output.withText { socket.sendClose(code: error.closeCode, using: &channel.loop.entropy, into: &$0) }
      }
      guard await flush(), !socket.hasSentClose else { return }
    }
  }

  private func handle(_ event: WebSocketEvent) {
    let payload = [UInt8](copying: socket.payload)
    if isSocketIO, event == .message(.text) { return send(DemoSocketIO.replies(to: payload)) }
    output.withText { text in
      switch event {
      case .message(let kind): socket.sendMessage(kind, payload.span, using: &channel.loop.entropy, into: &text)
      case .ping: socket.sendPong(payload.span, using: &channel.loop.entropy, into: &text)
      case .pong: break
      case .close(let code, _): socket.sendClose(code: code, using: &channel.loop.entropy, into: &text)
      }
    }
  }

  func timerFired(_ token: Int) {
    guard !socket.hasSentClose, !channel.isClosed else { return }
    tick += 1
    if isSocketIO {
      send(DemoSocketIO.ticks(tick))
    } else {
      send(["{\"tick\":\(tick)}"])
    }
    _ = output.flush(to: channel)
    timer = channel.loop.schedule(at: channel.loop.now + interval, self)
  }

  private func send(_ messages: [String]) {
    output.withText { text in
      for message in messages {
        let bytes = Array(message.utf8)
        socket.sendMessage(.text, bytes.span, using: &channel.loop.entropy, into: &text)
      }
    }
  }

  private func receive(into take: (Span<UInt8>) -> Void) async -> Bool {
    let channel = channel
    while true {
      switch channel.receive() {
      case .bytes:
        take(channel.received)
        return true
      case .wouldBlock:
        guard await channel.readable() == .ready else { return false }
      case .endOfStream, .failed: return false
      }
    }
  }

  private func flush() async -> Bool {
    while true {
      switch output.flush(to: channel) {
      case .done: return true
      case .paused: await channel.loop.yieldTurn()
      case .blocked: guard await channel.writable() == .ready else { return false }
      case .failed: return false
      }
    }
  }
}
