import ByteStreams
import CLinux
import Glibc

/// Creates the sockets of this program: non-blocking, closed on exec, without Nagle's delay.
package enum Sockets {
  /// The number of connections that the kernel queues while the acceptor is busy. The kernel limits this number to
  /// `net.core.somaxconn`.
  private static var backlog: Int32 { 4096 }

  /// Creates a listening socket. With `reusesPort`, several loops may listen on one address and the kernel distributes
  /// connections.
  package static func listen(on address: SocketAddress, reusesPort: Bool) throws(SystemError) -> Int32 {
    let descriptor = try make(address)
    do throws(SystemError) {
      if case .unix(let path) = address { try removeStaleSocket(at: path) }
      _ = SystemCall.setOption(descriptor, level: SOL_SOCKET, name: SO_REUSEADDR, value: 1)
      if reusesPort { _ = SystemCall.setOption(descriptor, level: SOL_SOCKET, name: SO_REUSEPORT, value: 1) }
      if address.isIPv6 {
        _ = SystemCall.setOption(descriptor, level: Int32(IPPROTO_IPV6), name: IPV6_V6ONLY, value: 1)
      }
      guard unsafe address.withKernelAddress({ unsafe bind(descriptor, $0, $1) }) == 0 else {
        throw SystemError("bind", code: errno, subject: address.description)
      }
      // Accepted sockets inherit this option, which saves a system call for each connection.
      if address.family != AF_UNIX { disableDelay(descriptor) }
      guard Glibc.listen(descriptor, backlog) == 0 else {
        throw SystemError("listen", code: errno, subject: address.description)
      }
      return descriptor
    } catch {
      SystemCall.close(descriptor)
      throw error
    }
  }

  /// Throws if another process uses `address`. Without this check, two gateways could run on one address unnoticed
  /// because of SO_REUSEPORT, and each would get half of the requests. Port 0 and paths are not checked.
  package static func checkUnused(_ address: SocketAddress) throws(SystemError) {
    guard let port = address.port, port != 0 else { return }
    SystemCall.close(try listen(on: address, reusesPort: false))
  }

  /// The address that a socket is bound to. For port 0 it has the port that the kernel chose.
  package static func localAddress(of descriptor: Int32) throws(SystemError) -> SocketAddress {
    unsafe try address(of: descriptor, call: "getsockname") { unsafe getsockname($0, $1, $2) }
  }

  package static func peerAddress(of descriptor: Int32) throws(SystemError) -> SocketAddress {
    unsafe try address(of: descriptor, call: "getpeername") { unsafe getpeername($0, $1, $2) }
  }

  /// Raises the limit on open files of this process to the hard limit. Returns the resulting limit.
  @discardableResult
  package static func raiseDescriptorLimit() -> Int {
    var limit = rlimit()
    guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
    let soft = limit.rlim_cur
    limit.rlim_cur = limit.rlim_max
    let isRaised = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0
    return Int(clamping: isRaised ? limit.rlim_max : soft)
  }

  package static func make(_ address: SocketAddress) throws(SystemError) -> Int32 {
    let kind = Int32(SOCK_STREAM.rawValue) | O_NONBLOCK | O_CLOEXEC
    let descriptor = socket(address.family, kind, 0)
    guard descriptor >= 0 else { throw SystemError("socket", code: errno, subject: address.description) }
    return descriptor
  }

  /// Sets `TCP_USER_TIMEOUT`. Has no effect on a Unix-domain socket, whose peer cannot disappear unnoticed.
  package static func setUserTimeout(_ timeout: TimeSpan, of descriptor: Int32) {
    _ = SystemCall.setOption(
      descriptor, level: Int32(IPPROTO_TCP), name: TCP_USER_TIMEOUT,
      value: Int32(clamping: timeout.millisecondsRoundedUp))
  }

  package static func disableDelay(_ descriptor: Int32) {
    _ = SystemCall.setOption(descriptor, level: Int32(IPPROTO_TCP), name: TCP_NODELAY, value: 1)
  }

  /// Removes the file at `path` if it is a socket that refuses connections: a killed process has left it behind. Other
  /// files are kept.
  private static func removeStaleSocket(at path: String) throws(SystemError) {
    guard path.utf8.count <= SocketAddress.longestPath else {
      throw SystemError("bind", code: ENAMETOOLONG, subject: "unix:\(path)")
    }
    var status = stat()
    guard unsafe lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK else { return }
    let probe = try make(.unix(path: path))
    defer { SystemCall.close(probe) }
    let result = unsafe SocketAddress.unix(path: path).withKernelAddress { unsafe Glibc.connect(probe, $0, $1) }
    if result != 0, errno == ECONNREFUSED { unsafe unlink(path) }
  }

  private static func address(
    of descriptor: Int32, call: String,
    _ query: (Int32, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
  ) throws(SystemError) -> SocketAddress {
    var storage = sockaddr_storage()
    var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let result = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe query(descriptor, $0, &size) }
    }
    guard result == 0, let address = SocketAddress(storage) else { throw SystemError(call, code: errno) }
    return address
  }
}

extension Sockets {
  /// Whether an accept has failed for lack of descriptors or memory, so that further accepts will also fail for a
  /// while.
  package static func isResourceExhaustion(_ code: Int32) -> Bool {
    code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM
  }

  /// Closes a connection that no object owns yet, with RST, so that the kernel keeps no state of it.
  package static func reset(_ descriptor: Int32) {
    var lingering = linger(l_onoff: 1, l_linger: 0)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &lingering, socklen_t(MemoryLayout<linger>.size))
    SystemCall.close(descriptor)
  }
}
