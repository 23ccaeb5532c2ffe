import ByteStreams

/// Parses rtnetlink(7) messages: one datagram in, events out.
///
/// Numbers are in host byte order. Every length is checked against the remaining bytes: a malformed datagram yields
/// only the events before the error. The cost is linear in the length of the datagram.
package enum RouteMessages {
  /// The events of one datagram, in their order.
  package static func events(in datagram: Span<UInt8>) -> [NetworkEvent] {
    var events: [NetworkEvent] = []
    var offset = 0
    while let length = Netlink.number(datagram, at: offset, as: UInt32.self).map(Int.init),
      length >= Netlink.messageHeader,
      length <= datagram.count - offset, let type = Netlink.number(datagram, at: offset + 4, as: UInt16.self)
    {
      let body = datagram.extracting(offset + Netlink.messageHeader..<offset + length)
      if let event = event(type, body) { events.append(event) }
      offset += Netlink.aligned(length)
    }
    return events
  }

  private static func event(_ type: UInt16, _ body: Span<UInt8>) -> NetworkEvent? {
    switch type {
    case Netlink.overrun: .overrun
    case Netlink.newLink, Netlink.deleteLink: link(body, isRemoved: type == Netlink.deleteLink)
    case Netlink.newAddress, Netlink.deleteAddress: address(body, isPresent: type == Netlink.newAddress)
    case Netlink.newRoute, Netlink.deleteRoute: route(body, isPresent: type == Netlink.newRoute)
    default: nil
    }
  }

  /// `struct ifinfomsg`: family, pad, type (2), index (4), flags (4), change (4).
  private static func link(_ body: Span<UInt8>, isRemoved: Bool) -> NetworkEvent? {
    guard body.count >= Netlink.linkHeader, let index = Netlink.number(body, at: 4, as: UInt32.self),
      let flags = Netlink.number(body, at: 8, as: UInt32.self), flags & Netlink.isLoopback == 0
    else { return nil }
    if isRemoved { return .link(index, .removed) }
    return .link(index, flags & Netlink.isUsable == Netlink.isUsable ? .up : .down)
  }

  /// `struct ifaddrmsg`: family, prefix, flags, scope, index (4); then attributes.
  private static func address(_ body: Span<UInt8>, isPresent: Bool) -> NetworkEvent? {
    guard body.count >= Netlink.addressHeader, let index = Netlink.number(body, at: 4, as: UInt32.self) else {
      return nil
    }
    if isPresent, body[2] & Netlink.isTentative != 0 { return nil }
    let attributes = body.extracting(Netlink.addressHeader...)
    let found =
      value(of: Netlink.local, in: attributes, family: body[0], link: index)
      ?? value(of: Netlink.address, in: attributes, family: body[0], link: index)
    return found.map { .address($0, isPresent: isPresent) }
  }

  /// `struct rtmsg`: family, two prefixes, tos, table, protocol, scope, type, flags (4).
  private static func route(_ body: Span<UInt8>, isPresent: Bool) -> NetworkEvent? {
    guard body.count >= Netlink.routeHeader, body[7] == Netlink.unicast,
      let flags = Netlink.number(body, at: 8, as: UInt32.self),
      flags & Netlink.isCloned == 0
    else { return nil }
    return .route(isPresent: isPresent)
  }

  /// The address in the first attribute of type `wanted`; nil if there is none, or if its length does not fit the
  /// family.
  private static func value(
    of wanted: UInt16, in attributes: Span<UInt8>, family: UInt8, link: UInt32
  ) -> IPAddress? {
    var offset = 0
    while let length = Netlink.number(attributes, at: offset, as: UInt16.self).map(Int.init),
      length >= Netlink.attributeHeader,
      length <= attributes.count - offset, let type = Netlink.number(attributes, at: offset + 2, as: UInt16.self)
    {
      if type & Netlink.attributeType == wanted {
        let value = attributes.extracting(offset + Netlink.attributeHeader..<offset + length)
        return address(value, family: family, link: link)
      }
      offset += Netlink.aligned(length)
    }
    return nil
  }

  /// Addresses are in network byte order.
  private static func address(_ bytes: Span<UInt8>, family: UInt8, link: UInt32) -> IPAddress? {
    func joined(_ range: Range<Int>) -> UInt64 { range.reduce(0) { $0 << 8 | UInt64(bytes[$1]) } }
    switch (family, bytes.count) {
    case (Netlink.familyIPv4, 4):
      return .ipv4(UInt32(joined(0..<4)))
    case (Netlink.familyIPv6, 16):
      // fe80::/10 is valid on its link only (RFC 4291 §2.5.6).
      let isLinkLocal = bytes[0] == 0xFE && bytes[1] & 0xC0 == 0x80
      return .ipv6(high: joined(0..<8), low: joined(8..<16), scope: isLinkLocal ? link : 0)
    default:
      return nil
    }
  }
}
