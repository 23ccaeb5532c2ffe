import ByteStreams
import CLinux
import Glibc
import RouteNetlink

/// Finds out how the kernel would send to an address. Needs no privilege, and sends no packet.
package enum RouteLookup {
  /// Whether this machine has `address`: as a primary or secondary address of a link, or by a local route. Returns
  /// false if there is no route to `address`, since no connection is possible in that case.
  package static func isOwn(_ address: IPAddress) throws(SystemError) -> Bool {
    let descriptor = socket(AF_NETLINK, Int32(SOCK_RAW.rawValue) | O_NONBLOCK | O_CLOEXEC, NETLINK_ROUTE)
    guard descriptor >= 0 else { throw SystemError("socket", code: errno, subject: "netlink") }
    defer { SystemCall.close(descriptor) }
    let request = RouteQuery.request(for: address.unmapped)
    let sent = SystemCall.retrying {
      unsafe request.withUnsafeBytes { unsafe send(descriptor, $0.baseAddress, $0.count, 0) }
    }
    guard sent == request.count else { throw SystemError("send", code: errno, subject: "netlink") }
    // The kernel has queued its response before `send` returns.
    var response = [UInt8](repeating: 0, count: RouteQuery.responseLimit)
    let count = SystemCall.retrying {
      unsafe response.withUnsafeMutableBytes { unsafe recv(descriptor, $0.baseAddress, $0.count, 0) }
    }
    guard count >= 0 else { throw SystemError("recv", code: errno, subject: "netlink") }
    switch RouteQuery.read(response.span.extracting(first: count)) {
    case .own: return true
    case .other, .unreachable: return false
    case .failed(let code): throw SystemError("RTM_GETROUTE", code: code, subject: "netlink")
    case .malformed: throw SystemError("RTM_GETROUTE", code: EBADMSG, subject: "netlink")
    }
  }
}
