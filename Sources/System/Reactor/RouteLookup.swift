import ByteStreams
import CLinux
import Glibc

/// Asks the kernel how it would send to an address (rtnetlink(7), RTM_GETROUTE). Needs no privilege, and sends nothing.
package enum RouteLookup {
  /// The constants used from linux/netlink.h and linux/rtnetlink.h.
  private enum Kernel {
    static let error: UInt16 = 2
    static let newRoute: UInt16 = 24
    static let getRoute: UInt16 = 26
    static let request: UInt16 = 1
    static let destination: UInt16 = 1
    static let messageHeader = 16
    static let routeHeader = 12
    static let attributeHeader = 4
    /// RTN_UNICAST: the packet leaves this machine. All others are delivered here, or are addresses of groups.
    static let unicast: UInt8 = 1
  }

  /// Longer than any response: a header, the route, and about twenty attributes.
  private static var responseLimit: Int { 4_096 }

  /// Whether this machine has `address`: the primary and secondary addresses of its links, and all that local routes deliver here. False if
  /// there is no route, so that no connection is possible.
  package static func isOwn(_ address: IPAddress) throws(SystemError) -> Bool {
    let descriptor = socket(AF_NETLINK, Int32(SOCK_RAW.rawValue) | O_NONBLOCK | O_CLOEXEC, NETLINK_ROUTE)
    guard descriptor >= 0 else { throw SystemError("socket", code: errno, subject: "netlink") }
    defer { SystemCall.close(descriptor) }
    let request = request(for: address.unmapped)
    let sent = SystemCall.retrying {
      unsafe request.withUnsafeBytes { unsafe send(descriptor, $0.baseAddress, $0.count, 0) }
    }
    guard sent == request.count else { throw SystemError("send", code: errno, subject: "netlink") }
    // The kernel has queued its response before `send` returns.
    var response = [UInt8](repeating: 0, count: responseLimit)
    let count = SystemCall.retrying {
      unsafe response.withUnsafeMutableBytes { unsafe recv(descriptor, $0.baseAddress, $0.count, 0) }
    }
    guard count >= 0 else { throw SystemError("recv", code: errno, subject: "netlink") }
    return try isOwn(in: response.span.extracting(first: count))
  }

  static func request(for address: IPAddress) -> [UInt8] {
    let bytes: [UInt8]
    switch address {
    case .ipv4(let value): bytes = bigEndian(UInt64(value), count: 4)
    case .ipv6(let high, let low, _): bytes = bigEndian(high, count: 8) + bigEndian(low, count: 8)
    }
    let attribute = Kernel.attributeHeader + bytes.count
    var message: [UInt8] = []
    append(UInt32(Kernel.messageHeader + Kernel.routeHeader + attribute), to: &message)
    append(Kernel.getRoute, to: &message)
    append(Kernel.request, to: &message)
    // Sequence number and port.
    append(UInt64(0), to: &message)
    // struct rtmsg: family, length of the destination's prefix; the rest is zero.
    message.append(UInt8(bytes.count == 4 ? AF_INET : AF_INET6))
    message.append(UInt8(bytes.count * 8))
    message += [UInt8](repeating: 0, count: Kernel.routeHeader - 2)
    append(UInt16(attribute), to: &message)
    append(Kernel.destination, to: &message)
    return message + bytes
  }

  static func isOwn(in response: Span<UInt8>) throws(SystemError) -> Bool {
    // struct rtmsg has the type at 7; struct nlmsgerr begins with the negative code.
    guard let type = number(response, at: 4, as: UInt16.self) else { throw malformed }
    switch type {
    case Kernel.newRoute where response.count >= Kernel.messageHeader + Kernel.routeHeader:
      return response[Kernel.messageHeader + 7] != Kernel.unicast
    case Kernel.error:
      guard let code = number(response, at: Kernel.messageHeader, as: Int32.self), code < 0 else { throw malformed }
      if [ENETUNREACH, EHOSTUNREACH].contains(-code) { return false }
      throw SystemError("RTM_GETROUTE", code: -code, subject: "netlink")
    default:
      throw malformed
    }
  }

  private static var malformed: SystemError { SystemError("RTM_GETROUTE", code: EBADMSG, subject: "netlink") }

  /// In host byte order.
  private static func append(_ number: some FixedWidthInteger, to message: inout [UInt8]) {
    unsafe withUnsafeBytes(of: number) { unsafe message.append(contentsOf: $0) }
  }

  private static func bigEndian(_ value: UInt64, count: Int) -> [UInt8] {
    (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) }
  }

  /// A number in host byte order; nil if it would extend beyond the end.
  private static func number<Number: FixedWidthInteger & BitwiseCopyable>(
    _ bytes: Span<UInt8>, at offset: Int, as type: Number.Type
  ) -> Number? {
    guard offset <= bytes.count - MemoryLayout<Number>.size else { return nil }
    // Every bit pattern is a valid number.
    return unsafe bytes.bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: type)
  }
}
