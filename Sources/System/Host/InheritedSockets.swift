import ByteStreams
import CLinux
import Glibc

/// The listening sockets with which the process was started. The protocol is sd_listen_fds(3), which systemd and other
/// supervisors use. The connection queues of these sockets outlive the process, so no connection is refused during a
/// restart.
package struct InheritedSockets: Sendable {
  package struct Socket: Equatable, Sendable {
    package let descriptor: Int32
    /// The name in `LISTEN_FDNAMES`; empty if the socket has no name.
    package let name: String
    package let address: SocketAddress
  }

  /// Why an inherited descriptor cannot be used.
  package struct Problem: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String
  }

  /// The first descriptor (SD_LISTEN_FDS_START).
  private static var firstDescriptor: Int32 { 3 }
  /// Maximum number of inherited sockets. No configuration has this many listeners. Without the limit, a wrong number
  /// would make other descriptors of the process look like sockets.
  package static var maximumCount: Int { 64 }

  package let sockets: [Socket]

  package static var none: InheritedSockets { InheritedSockets(sockets: []) }

  package init(sockets: [Socket]) { self.sockets = sockets }

  /// Takes the sockets that are meant for this process, and removes the variables from the environment, so that no
  /// child process takes the sockets for its own. Must be called once, before any thread is started.
  package static func take() throws(Problem) -> InheritedSockets {
    let environment = SystemFile.environment()
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] { unsafe _ = unsetenv(name) }
    // Variables with another PID were meant for an ancestor that has not removed them.
    guard let text = environment["LISTEN_FDS"], environment["LISTEN_PID"].flatMap(pid_t.init) == getpid() else {
      return .none
    }
    guard let count = Int(text), (0...maximumCount).contains(count) else {
      throw Problem(description: "LISTEN_FDS is '\(text)': use a number from 0 to \(maximumCount)")
    }
    let names = environment["LISTEN_FDNAMES"].map { $0.split(separator: ":", omittingEmptySubsequences: false) } ?? []
    var sockets: [Socket] = []
    for index in 0..<count {
      let name = index < names.count ? String(names[index]) : ""
      sockets.append(try socket(firstDescriptor + Int32(index), name: name))
    }
    return InheritedSockets(sockets: sockets)
  }

  /// Checks a descriptor and prepares it for an event loop.
  private static func socket(_ descriptor: Int32, name: String) throws(Problem) -> Socket {
    func problem(_ reason: String) -> Problem {
      let shown = name.isEmpty ? "" : " ('\(name)')"
      return Problem(description: "inherited descriptor \(descriptor)\(shown) \(reason)")
    }
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0 else { throw problem("is not open: LISTEN_FDS names too many") }
    guard status.st_mode & S_IFMT == S_IFSOCK else { throw problem("is not a socket") }
    guard option(descriptor, SO_TYPE) == Int32(SOCK_STREAM.rawValue) else { throw problem("is not a stream socket") }
    guard [AF_INET, AF_INET6, AF_UNIX].contains(option(descriptor, SO_DOMAIN)) else {
      throw problem("is neither an IP nor a Unix-domain socket")
    }
    guard option(descriptor, SO_ACCEPTCONN) == 1 else { throw problem("does not listen") }
    let address: SocketAddress
    do throws(SystemError) {
      address = try Sockets.localAddress(of: descriptor)
    } catch {
      throw problem("has no usable address: \(error)")
    }
    if case .unix(let path) = address, path.isEmpty { throw problem("has no path in the file system") }
    guard fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0,
      fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) == 0
    else { throw problem("cannot be made non-blocking: \(SystemError.reason(of: errno))") }
    // TCP_NODELAY is set, as on the sockets that this process opens itself.
    if address.family != AF_UNIX { Sockets.disableDelay(descriptor) }
    return Socket(descriptor: descriptor, name: name, address: address)
  }

  private static func option(_ descriptor: Int32, _ name: Int32) -> Int32 {
    SystemCall.option(descriptor, level: SOL_SOCKET, name: name)
  }

  /// Returns `count` descriptors for one socket, one per event loop. Each owner closes its own descriptor. Closing the
  /// last descriptor closes the socket in this process only.
  package static func share(_ descriptor: Int32, count: Int) throws(SystemError) -> [Int32] {
    var result = [descriptor]
    while result.count < count {
      let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
      guard copy >= 0 else { throw SystemError("fcntl", code: errno, subject: "descriptor \(descriptor)") }
      result.append(copy)
    }
    return result
  }
}
