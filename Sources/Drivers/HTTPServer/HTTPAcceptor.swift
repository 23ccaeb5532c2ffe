import ByteStreams
import Reactor

/// Accepts connections from one listening socket on one loop.
final class HTTPAcceptor: LoopTask {
  /// Connections accepted before other tasks get their turn.
  private static var burst: Int { 64 }
  /// How long accepting rests when the process is out of descriptors or memory.
  private static var rest: TimeSpan { .milliseconds(100) }

  private let socket: Channel
  private let listener: HTTPListener
  private unowned let worker: HTTPWorker
  private var isStopped = false

  init(socket: Channel, listener: HTTPListener, worker: HTTPWorker) {
    self.socket = socket
    self.listener = listener
    self.worker = worker
  }

  func stop() {
    isStopped = true
    // What the kernel has completed already is served, not reset.
    acceptBurst(limit: 4096)
    socket.close()
  }

  func run() async {
    while !isStopped {
      guard await socket.readable() == .ready, !isStopped else { continue }
      if acceptBurst(limit: Self.burst) {
        await worker.loop.yieldTurn()
      } else {
        // Each connection that arrives meanwhile ends the wait: no reason to try again yet.
        let end = worker.loop.now + Self.rest
        while !isStopped, worker.loop.now < end { _ = await socket.readEvent(until: end) }
      }
    }
  }

  /// Accepts pending connections. False where the process is short of something, so that trying on would only burn time.
  @discardableResult
  private func acceptBurst(limit: Int) -> Bool {
    for _ in 0..<limit {
      switch Sockets.accept(from: socket) {
      case .connection(let descriptor, let peer): worker.accept(descriptor, from: peer, on: listener)
      case .wouldBlock: return true
      case .failed(let code):
        if Sockets.isShortage(code) {
          worker.warnOfShortage(code)
          return false
        }
      }
    }
    return true
  }
}
