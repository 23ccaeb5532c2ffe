import Glibc

/// A port of 127.0.0.1 that no other program gets while this object exists, even while its server is stopped.
///
/// A socket is bound to the port but never listens. A server that sets `SO_REUSEADDR` can listen, stop and listen
/// again.
package final class ReservedPort: Sendable {
  package let number: UInt16
  private let descriptor: Int32

  package init() throws {
    for _ in 0..<1000 {
      // The range is below the ephemeral ports of Linux.
      let number = UInt16.random(in: 12_000..<32_000)
      if let descriptor = Self.bound(to: number) {
        self.number = number
        self.descriptor = descriptor
        return
      }
    }
    throw NoFreePort()
  }

  deinit { close(descriptor) }

  private struct NoFreePort: Error {}

  private static func bound(to number: UInt16) -> Int32? {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { return nil }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = number.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    // The socket has no SO_REUSEADDR, so that the call fails if another reservation or a server has the port.
    let result = unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw in
        unsafe bind(descriptor, raw, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    var on: Int32 = 1
    guard
      result == 0,
      unsafe setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size)) == 0
    else {
      close(descriptor)
      return nil
    }
    return descriptor
  }
}
