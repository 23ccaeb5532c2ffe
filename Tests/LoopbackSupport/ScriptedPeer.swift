import Foundation
import Host
import Synchronization
import Testing

/// A server that runs the test's steps, one for each connection, on its own thread. The last step applies to all later
/// connections.
package final class ScriptedPeer: Sendable {
  package typealias Step = @Sendable (LoopbackClient) -> Void

  package let address: SocketAddress
  private let descriptor: Int32
  private let script: Mutex<[Step]>
  private let seen = Mutex<[String]>([])
  private let accepted = Atomic(0)

  package init(_ script: Step...) throws {
    self.script = Mutex(script)
    descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    let bound = unsafe SocketAddress.ipv4(0x7F00_0001, port: 0).withKernelAddress { [descriptor] in
      unsafe bind(descriptor, $0, $1)
    }
    try #require(bound == 0 && listen(descriptor, 128) == 0)
    address = try Sockets.localAddress(of: descriptor)
    let thread = Thread { [self] in
      while true {
        let connection = accept(descriptor, nil, nil)
        guard connection >= 0 else { return }
        accepted.add(1, ordering: .sequentiallyConsistent)
        let step = self.script.withLock { $0.count > 1 ? $0.removeFirst() : $0[0] }
        // A gateway may keep a connection open for any time, so the step runs on another thread.
        Thread { step(LoopbackClient(connection, expectsInput: false)) }.start()
      }
    }
    thread.start()
  }

  package var connections: Int { accepted.load(ordering: .sequentiallyConsistent) }
  /// The heads of the requests that steps have noted.
  package var requests: [String] { seen.withLock { $0 } }

  package func note(_ head: String) { seen.withLock { $0.append(head) } }

  /// Ends the thread that accepts connections.
  package func stop() { shutdown(descriptor, Int32(SHUT_RDWR)) }
}
