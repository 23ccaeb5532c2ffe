import ByteStreams

/// A query of how the kernel would send to an address: the request (rtnetlink(7), RTM_GETROUTE), and the meaning of its
/// response.
package enum RouteQuery {
  package enum Response: Equatable, Sendable {
    /// The address belongs to this machine or to a group: packets to it do not leave by a unicast route.
    case own
    /// Packets leave this machine.
    case other
    /// There is no route.
    case unreachable
    /// The kernel reports an error, by its code.
    case failed(Int32)
    case malformed
  }

  /// Maximum size of a response, in bytes. A response consists of a header, the route, and about twenty attributes,
  /// which are shorter.
  package static var responseLimit: Int { 4_096 }

  package static func request(for address: IPAddress) -> [UInt8] {
    let bytes: [UInt8]
    switch address {
    case .ipv4(let value): bytes = bigEndian(UInt64(value), count: 4)
    case .ipv6(let high, let low, _): bytes = bigEndian(high, count: 8) + bigEndian(low, count: 8)
    }
    let attribute = Netlink.attributeHeader + bytes.count
    var message: [UInt8] = []
    Netlink.append(UInt32(Netlink.messageHeader + Netlink.routeHeader + attribute), to: &message)
    Netlink.append(Netlink.getRoute, to: &message)
    Netlink.append(Netlink.request, to: &message)
    // Sequence number and port.
    Netlink.append(UInt64(0), to: &message)
    // struct rtmsg: family, length of the destination's prefix; the rest is zero.
    message.append(bytes.count == 4 ? Netlink.familyIPv4 : Netlink.familyIPv6)
    message.append(UInt8(bytes.count * 8))
    message += [UInt8](repeating: 0, count: Netlink.routeHeader - 2)
    Netlink.append(UInt16(attribute), to: &message)
    Netlink.append(Netlink.destination, to: &message)
    return message + bytes
  }

  package static func read(_ response: Span<UInt8>) -> Response {
    // struct rtmsg has the type at 7; struct nlmsgerr begins with the negative code.
    switch Netlink.number(response, at: 4, as: UInt16.self) {
    case Netlink.newRoute where response.count >= Netlink.messageHeader + Netlink.routeHeader:
      return response[Netlink.messageHeader + 7] == Netlink.unicast ? .other : .own
    case Netlink.error:
      guard let code = Netlink.number(response, at: Netlink.messageHeader, as: Int32.self),
        (-Int32.max...(-1)).contains(code)
      else { return .malformed }
      return Netlink.unreachable.contains(-code) ? .unreachable : .failed(-code)
    default:
      return .malformed
    }
  }

  private static func bigEndian(_ value: UInt64, count: Int) -> [UInt8] {
    (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) }
  }
}
