import Host
import Reactor

/// A server on its own loop, which runs a task for each connection.
package final class LoopbackServer: Sendable {
  package let address: SocketAddress
  private let descriptor: Int32
  private let loop: EventLoop

  /// Starts to listen, but accepts no connection before `serve`.
  package init() throws {
    descriptor = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: false)
    address = try Sockets.localAddress(of: descriptor)
    loop = try EventLoop(index: 0)
  }

  /// - Parameter makeTask: makes the task of a connection, on the loop.
  package func serve(_ makeTask: @escaping @Sendable (Channel) -> any LoopTask) {
    loop.submit { [descriptor] context in
      guard let listener = try? Channel(descriptor: descriptor, loop: context) else { return nil }
      return Acceptor(listener, makeTask)
    }
  }

  package var port: UInt16 { address.port ?? 0 }

  package func stop() {
    loop.stop()
    loop.join()
  }

  private final class Acceptor: LoopTask {
    private let listener: Channel
    private let makeTask: @Sendable (Channel) -> any LoopTask

    init(_ listener: Channel, _ makeTask: @escaping @Sendable (Channel) -> any LoopTask) {
      self.listener = listener
      self.makeTask = makeTask
    }

    func run() async {
      while await listener.readable() == .ready {
        guard case .connection(let descriptor, _) = Sockets.accept(from: listener),
          let channel = try? Channel(descriptor: descriptor, loop: listener.loop)
        else { continue }
        listener.loop.spawn(makeTask(channel))
      }
    }
  }
}
