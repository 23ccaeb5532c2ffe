import ByteStreams
import CLinux
import Glibc
import Host

/// Sockets of channels.
extension Sockets {
  /// The result of one `accept`.
  package enum AcceptResult {
    case connection(Int32, SocketAddress)
    case wouldBlock
    /// The connection is lost or a resource is exhausted; the value is `errno`.
    case failed(Int32)
  }

  package static func accept(from listener: Channel) -> AcceptResult {
    var storage = sockaddr_storage()
    var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let descriptor = SystemCall.retrying {
      unsafe withUnsafeMutablePointer(to: &storage) { pointer in
        unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          unsafe Int(clinux_accept(listener.descriptor, $0, &size))
        }
      }
    }
    guard descriptor >= 0 else {
      let code = errno
      if code == EAGAIN || code == EWOULDBLOCK {
        listener.markDrained()
        return .wouldBlock
      }
      return .failed(code)
    }
    let peer = SocketAddress(storage) ?? .unix(path: "")
    return .connection(Int32(descriptor), peer)
  }

  /// The number of established connections that wait for `accept`; 0 if it is unknown.
  package static func pendingConnections(of listener: Channel) -> Int {
    max(0, Int(clinux_pending_connections(listener.descriptor)))
  }

  /// Starts to connect to `address`. The caller must wait until the channel is writable, and then check
  /// `takeSocketError()`.
  package static func connect(
    to address: SocketAddress, on loop: LoopContext, userTimeout: TimeSpan? = nil
  ) throws(SystemError) -> Channel {
    let descriptor = try make(address)
    if address.family != AF_UNIX {
      disableDelay(descriptor)
      _ = SystemCall.setOption(descriptor, level: SOL_SOCKET, name: SO_KEEPALIVE, value: 1)
      if let userTimeout { setUserTimeout(userTimeout, of: descriptor) }
    }
    let result = SystemCall.retrying {
      unsafe Int(address.withKernelAddress { unsafe Glibc.connect(descriptor, $0, $1) })
    }
    guard result == 0 || errno == EINPROGRESS else {
      let code = errno
      SystemCall.close(descriptor)
      throw SystemError("connect", code: code, subject: address.description)
    }
    let channel = try Channel(descriptor: descriptor, loop: loop)
    if result != 0 { channel.markConnecting() }
    return channel
  }
}
