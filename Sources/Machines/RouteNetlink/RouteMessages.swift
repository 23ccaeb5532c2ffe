import ByteStreams

/// Parses rtnetlink(7) messages: one datagram in, events out.
///
/// Numbers are in host byte order. Every length is checked against the bytes that are left: a malformed datagram yields the
/// events before the error and no more. The cost is linear in the length of the datagram.
package enum RouteMessages {
  /// The constants used from linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h and linux/if.h.
  private enum Kernel {
    static let overrun: UInt16 = 4
    static let newLink: UInt16 = 16
    static let deleteLink: UInt16 = 17
    static let newAddress: UInt16 = 20
    static let deleteAddress: UInt16 = 21
    static let newRoute: UInt16 = 24
    static let deleteRoute: UInt16 = 25

    static let messageHeader = 16
    static let linkHeader = 16
    static let addressHeader = 8
    static let routeHeader = 12
    static let attributeHeader = 4
    /// The two upper bits of an attribute's type are flags.
    static let attributeType: UInt16 = 0x3FFF

    /// IFF_LOOPBACK.
    static let isLoopback: UInt32 = 0x8
    /// IFF_UP and IFF_RUNNING: enabled and operational.
    static let isUsable: UInt32 = 0x41
    /// IFA_F_TENTATIVE: duplicate address detection is in progress (RFC 4862 §5.4); another event reports its end.
    static let isTentative: UInt8 = 0x40
    static let familyIPv4: UInt8 = 2
    static let familyIPv6: UInt8 = 10
    /// On a point-to-point link, IFA_ADDRESS is the peer's. If there is an IFA_LOCAL, that is ours.
    static let address: UInt16 = 1
    static let local: UInt16 = 2
    /// RTN_UNICAST. The other types accompany an address and add no information.
    static let unicast: UInt8 = 1
    /// RTM_F_CLONED: a cache entry.
    static let isCloned: UInt32 = 0x200
  }

  /// The events of one datagram, in their order.
  package static func events(in datagram: Span<UInt8>) -> [NetworkEvent] {
    var events: [NetworkEvent] = []
    var offset = 0
    while let length = number(datagram, at: offset, as: UInt32.self).map(Int.init), length >= Kernel.messageHeader,
      length <= datagram.count - offset, let type = number(datagram, at: offset + 4, as: UInt16.self)
    {
      let body = datagram.extracting(offset + Kernel.messageHeader..<offset + length)
      if let event = event(type, body) { events.append(event) }
      offset += aligned(length)
    }
    return events
  }

  private static func event(_ type: UInt16, _ body: Span<UInt8>) -> NetworkEvent? {
    switch type {
    case Kernel.overrun: .overrun
    case Kernel.newLink, Kernel.deleteLink: link(body, isRemoved: type == Kernel.deleteLink)
    case Kernel.newAddress, Kernel.deleteAddress: address(body, isPresent: type == Kernel.newAddress)
    case Kernel.newRoute, Kernel.deleteRoute: route(body, isPresent: type == Kernel.newRoute)
    default: nil
    }
  }

  /// `struct ifinfomsg`: family, pad, type (2), index (4), flags (4), change (4).
  private static func link(_ body: Span<UInt8>, isRemoved: Bool) -> NetworkEvent? {
    guard body.count >= Kernel.linkHeader, let index = number(body, at: 4, as: UInt32.self),
      let flags = number(body, at: 8, as: UInt32.self), flags & Kernel.isLoopback == 0
    else { return nil }
    if isRemoved { return .link(index, .removed) }
    return .link(index, flags & Kernel.isUsable == Kernel.isUsable ? .up : .down)
  }

  /// `struct ifaddrmsg`: family, prefix, flags, scope, index (4); then attributes.
  private static func address(_ body: Span<UInt8>, isPresent: Bool) -> NetworkEvent? {
    guard body.count >= Kernel.addressHeader, let index = number(body, at: 4, as: UInt32.self) else { return nil }
    if isPresent, body[2] & Kernel.isTentative != 0 { return nil }
    let attributes = body.extracting(Kernel.addressHeader...)
    let found =
      value(of: Kernel.local, in: attributes, family: body[0], link: index)
      ?? value(of: Kernel.address, in: attributes, family: body[0], link: index)
    return found.map { .address($0, isPresent: isPresent) }
  }

  /// `struct rtmsg`: family, two prefixes, tos, table, protocol, scope, type, flags (4).
  private static func route(_ body: Span<UInt8>, isPresent: Bool) -> NetworkEvent? {
    guard body.count >= Kernel.routeHeader, body[7] == Kernel.unicast, let flags = number(body, at: 8, as: UInt32.self),
      flags & Kernel.isCloned == 0
    else { return nil }
    return .route(isPresent: isPresent)
  }

  /// The address in the first attribute of type `wanted`; nil if there is none, or if its length does not fit the family.
  private static func value(
    of wanted: UInt16, in attributes: Span<UInt8>, family: UInt8, link: UInt32
  ) -> IPAddress? {
    var offset = 0
    while let length = number(attributes, at: offset, as: UInt16.self).map(Int.init), length >= Kernel.attributeHeader,
      length <= attributes.count - offset, let type = number(attributes, at: offset + 2, as: UInt16.self)
    {
      if type & Kernel.attributeType == wanted {
        let value = attributes.extracting(offset + Kernel.attributeHeader..<offset + length)
        return address(value, family: family, link: link)
      }
      offset += aligned(length)
    }
    return nil
  }

  /// Addresses are in network byte order.
  private static func address(_ bytes: Span<UInt8>, family: UInt8, link: UInt32) -> IPAddress? {
    func joined(_ range: Range<Int>) -> UInt64 { range.reduce(0) { $0 << 8 | UInt64(bytes[$1]) } }
    switch (family, bytes.count) {
    case (Kernel.familyIPv4, 4):
      return .ipv4(UInt32(joined(0..<4)))
    case (Kernel.familyIPv6, 16):
      // fe80::/10 is valid on its link only (RFC 4291 §2.5.6).
      let isLinkLocal = bytes[0] == 0xFE && bytes[1] & 0xC0 == 0x80
      return .ipv6(high: joined(0..<8), low: joined(8..<16), scope: isLinkLocal ? link : 0)
    default:
      return nil
    }
  }

  /// Messages and attributes are aligned to four bytes.
  private static func aligned(_ length: Int) -> Int { (length + 3) & ~3 }

  /// A number in host byte order; nil if it would extend beyond the end.
  private static func number<Number: FixedWidthInteger & BitwiseCopyable>(
    _ bytes: Span<UInt8>, at offset: Int, as type: Number.Type
  ) -> Number? {
    guard offset <= bytes.count - MemoryLayout<Number>.size else { return nil }
    // Every bit pattern is a valid number.
    return unsafe bytes.bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: type)
  }
}
