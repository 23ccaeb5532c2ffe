import Foundation
import Host
import Testing
import Threading

/// A relay to a server, which records the bytes of its clients and how their connections end.
final class RecordingRelay: Sendable {
  struct Seen: Sendable {
    var connections = 0
    /// Bytes from clients.
    var bytes = 0
    /// How the clients' connections ended: 0 for FIN, otherwise the error.
    var ends: [Int32] = []
  }

  let address: SocketAddress
  private let listener: Int32
  private let state = Locked(Seen())

  var seen: Seen { state.withLock { $0 } }

  init(to server: SocketAddress) throws {
    listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    let descriptor = listener
    let bound = unsafe SocketAddress.ipv4(0x7F00_0001, port: 0).withKernelAddress { unsafe bind(descriptor, $0, $1) }
    try #require(bound == 0 && listen(descriptor, 64) == 0)
    address = try Sockets.localAddress(of: descriptor)
    Thread.detachNewThread { [self] in
      while true {
        let client = accept(descriptor, nil, nil)
        guard client >= 0 else { return }
        let target = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        _ = unsafe server.withKernelAddress { unsafe connect(target, $0, $1) }
        state.withLock { $0.connections += 1 }
        Thread.detachNewThread { [self] in
          let end = Self.pass(client, target) { count in state.withLock { $0.bytes += count } }
          state.withLock { $0.ends.append(end) }
          shutdown(target, Int32(SHUT_RDWR))
        }
        Thread.detachNewThread {
          _ = Self.pass(target, client) { _ in }
          shutdown(client, Int32(SHUT_WR))
        }
      }
    }
  }

  /// Ends the thread that accepts connections.
  func stop() { shutdown(listener, Int32(SHUT_RDWR)) }

  /// Returns the error that ended reading; 0 at the end of the stream.
  private static func pass(_ source: Int32, _ target: Int32, _ note: (Int) -> Void) -> Int32 {
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = unsafe read(source, &buffer, buffer.count)
      guard count > 0 else { return count == 0 ? 0 : errno }
      note(count)
      _ = unsafe send(target, &buffer, count, Int32(MSG_NOSIGNAL))
    }
  }
}
