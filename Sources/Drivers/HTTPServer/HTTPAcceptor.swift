import ByteStreams
import Host
import Reactor

/// Accepts connections from one listening socket on one loop.
final class HTTPAcceptor: LoopTask {
  /// Number of connections accepted before other tasks run.
  private static var burst: Int { 64 }
  /// How long no connections are accepted after the process has run out of descriptors or memory.
  private static var rest: TimeSpan { .milliseconds(100) }

  private let socket: Channel
  let listener: HTTPListener
  /// Whether other processes may also have the socket. If so, its pending connections are not lost when this process
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
    // Connections that the kernel has already established must be served and not reset. On an inherited socket, the
    // next process serves them. Otherwise, this process does.
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
        // Each new connection ends the wait for the socket, but an attempt before the end of the pause would fail
        // again.
        let end = worker.loop.now + Self.rest
        while !isStopped, worker.loop.now < end { _ = await socket.readEvent(until: end) }
      }
    }
  }

  /// Accepts up to `limit` pending connections. Returns false if a resource is exhausted, so that another attempt would
  /// fail, too.
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
