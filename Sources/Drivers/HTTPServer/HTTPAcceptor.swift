import ByteStreams
import Host
import Reactor

/// Accepts connections from one listening socket on one loop.
///
/// Like a connection, it waits without a task. Its task only accepts the connections beyond a burst.
final class HTTPAcceptor: LoopTask {
  /// Number of connections accepted before the other work of the loop.
  private static var burst: Int { 64 }
  /// How long no connections are accepted after the process has run out of descriptors or memory.
  private static var rest: TimeSpan { .milliseconds(100) }

  private enum Progress {
    /// No connection is pending.
    case done
    case atLimit
    /// A resource is exhausted, so that another attempt would fail, too.
    case exhausted
  }

  private let socket: Channel
  let listener: HTTPListener
  /// Whether other processes may also have the socket. If so, its pending connections are not lost when this process
  /// closes it.
  private let isInherited: Bool
  private unowned let worker: HTTPWorker
  private var isStopped = false
  /// The end of the pause after a resource was exhausted; nil outside a pause.
  private var restEnd: MonotonicTime?

  init(socket: Channel, listener: HTTPListener, isInherited: Bool, worker: HTTPWorker) {
    self.socket = socket
    self.listener = listener
    self.isInherited = isInherited
    self.worker = worker
  }

  func start() { acceptAll() }

  func stop() {
    isStopped = true
    // Connections that the kernel has already established must be served and not reset. On an inherited socket, the
    // next process serves them. Otherwise, this process does.
    if isInherited {
      socket.closeInThisProcess()
    } else {
      _ = accept(atMost: 4096)
      socket.close()
    }
  }

  func run() async {
    await worker.loop.yieldTurn()
    acceptAll()
  }

  /// Accepts a burst of connections, and then waits for more.
  private func acceptAll() {
    guard !isStopped else { return }
    if acceptBurst() { socket.wait(for: self) } else { worker.loop.spawn(self) }
  }

  /// Returns false if more connections may be pending.
  private func acceptBurst() -> Bool {
    // An accept that finds no connection takes seven times as long as reading their number. A connection that arrives
    // later raises an event of its own. The number is unknown, and 0, for a Unix-domain socket.
    let pending = Sockets.pendingConnections(of: socket)
    let limit = pending > 0 ? min(pending, Self.burst) : Self.burst
    switch accept(atMost: limit) {
    case .done: return true
    case .atLimit: return limit == pending
    case .exhausted:
      restEnd = worker.loop.now + Self.rest
      return true
    }
  }

  private func accept(atMost limit: Int) -> Progress {
    for _ in 0..<limit {
      switch Sockets.accept(from: socket) {
      case .connection(let descriptor, let peer): worker.accept(descriptor, from: peer, on: listener)
      case .wouldBlock: return .done
      case .failed(let code):
        guard Sockets.isResourceExhaustion(code) else { continue }
        worker.warnOfShortage(code)
        return .exhausted
      }
    }
    return .atLimit
  }
}

extension HTTPAcceptor: InputTarget {
  func processInput() -> Bool {
    // During a pause, an attempt would fail again.
    restEnd != nil || acceptBurst()
  }

  var inputDeadline: MonotonicTime { restEnd ?? .distantFuture }

  func inputWaitEnded(_ outcome: WaitOutcome) {
    switch outcome {
    case .ready: worker.loop.spawn(self)
    case .deadline:
      restEnd = nil
      acceptAll()
    case .woken, .closed: break
    }
  }
}
