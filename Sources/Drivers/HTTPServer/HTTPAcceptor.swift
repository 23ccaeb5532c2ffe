import ByteStreams
import Host
import Reactor

/// Accepts connections from one listening socket on one loop.
final class HTTPAcceptor: LoopTask {
  /// Number of connections accepted before other tasks run.
  private static var burst: Int { 64 }
  /// Pause in accepting when the process is out of descriptors or memory.
  private static var rest: TimeSpan { .milliseconds(100) }

  private let socket: Channel
  let listener: HTTPListener
  /// Whether other processes also have the socket, so that its pending connections are not lost when this process
  /// closes it.
  private let isInherited: Bool
  private unowned let worker: HTTPWorker
  private var isStopped = false

  init(socket: Channel, listener: HTTPListener, isInherited: Bool, worker: HTTPWorker) {
    self.socket = socket
    self.listener = listener
    self.isInherited = isInherited
    self.worker = worker
  }

  func stop() {
    isStopped = true
    // Connections that the kernel has already established are served, not reset. On an inherited socket they are left
    // to the next process.
    if isInherited {
      socket.closeInThisProcess()
    } else {
      acceptBurst(limit: 4096)
      socket.close()
    }
  }

  func run() async {
    while !isStopped {
      guard await socket.readable() == .ready, !isStopped else { continue }
      if acceptBurst(limit: Self.burst) {
        await worker.loop.yieldTurn()
      } else {
        // Each new connection ends this wait, but retrying before the pause is over would fail again.
        let end = worker.loop.now + Self.rest
        while !isStopped, worker.loop.now < end { _ = await socket.readEvent(until: end) }
      }
    }
  }

  /// Accepts up to `limit` pending connections. Returns false if a resource is exhausted, so that an immediate retry
  /// would fail too.
  @discardableResult
  private func acceptBurst(limit: Int) -> Bool {
    for _ in 0..<limit {
      switch Sockets.accept(from: socket) {
      case .connection(let descriptor, let peer): worker.accept(descriptor, from: peer, on: listener)
      case .wouldBlock: return true
      case .failed(let code):
        if Sockets.isResourceExhaustion(code) {
          worker.warnOfShortage(code)
          return false
        }
      }
    }
    return true
  }
}
