import ByteStreams
import CLinux
import Glibc
import Host

/// A socket on which the kernel reports changes to links, addresses and routes (rtnetlink(7)). The socket needs no
/// privilege.
package enum NetlinkSocket {
  /// The groups RTMGRP_LINK, and the groups of addresses and routes of both families.
  private static var groups: Int32 {
    RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE
  }

  /// Opens the socket. The caller must pass it to a `Channel`, which becomes its owner. A sandbox may forbid the socket
  /// (EAFNOSUPPORT, EPERM, EACCES).
  package static func open() throws(SystemError) -> Int32 {
    let kind = Int32(SOCK_RAW.rawValue) | O_NONBLOCK | O_CLOEXEC
    let descriptor = socket(AF_NETLINK, kind, NETLINK_ROUTE)
    guard descriptor >= 0 else { throw SystemError("socket", code: errno, subject: "netlink") }
    var address = sockaddr_nl()
    address.nl_family = sa_family_t(AF_NETLINK)
    address.nl_groups = UInt32(bitPattern: groups)
    let result = unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_nl>.size))
      }
    }
    guard result == 0 else {
      let code = errno
      SystemCall.close(descriptor)
      throw SystemError("bind", code: code, subject: "netlink")
    }
    return descriptor
  }

  /// The result of one read.
  package enum Received: Equatable, Sendable {
    /// A datagram from the kernel is in the channel's `received`.
    case datagram
    /// The sender was not the kernel. The datagram was dropped.
    case ignored
    case wouldBlock
    /// Events were lost: the kernel's buffer was full, or the datagram was larger than the buffer of the loop.
    case overrun
    case failed(Int32)
  }

  package static func receive(from channel: Channel) -> Received {
    let room = unsafe channel.loop.receiveBuffer
    var sender = sockaddr_nl()
    var size = socklen_t(MemoryLayout<sockaddr_nl>.size)
    let count = SystemCall.retrying {
      unsafe withUnsafeMutablePointer(to: &sender) { pointer in
        unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          // With MSG_TRUNC, the call returns the length of the datagram even if the buffer is smaller.
          unsafe recvfrom(channel.descriptor, room.baseAddress, room.count, Int32(MSG_TRUNC), $0, &size)
        }
      }
    }
    channel.loop.receivedCount = 0
    if count < 0 {
      let code = errno
      switch code {
      case EAGAIN, EWOULDBLOCK:
        channel.markDrained()
        return .wouldBlock
      case ENOBUFS:
        return .overrun
      default:
        return .failed(code)
      }
    }
    guard sender.nl_pid == 0 else { return .ignored }
    guard count <= room.count else { return .overrun }
    channel.loop.receivedCount = count
    return .datagram
  }
}
