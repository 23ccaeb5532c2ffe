import ByteStreams

/// Constants from linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h, linux/if.h and asm-generic/errno.h, and the
/// encoding of numbers in messages.
enum Netlink {
  static let error: UInt16 = 2
  static let overrun: UInt16 = 4
  static let newLink: UInt16 = 16
  static let deleteLink: UInt16 = 17
  static let newAddress: UInt16 = 20
  static let deleteAddress: UInt16 = 21
  static let newRoute: UInt16 = 24
  static let deleteRoute: UInt16 = 25
  static let getRoute: UInt16 = 26
  /// NLM_F_REQUEST.
  static let request: UInt16 = 1

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
  /// On a point-to-point link, IFA_ADDRESS is the peer's address, and IFA_LOCAL is this machine's address.
  static let address: UInt16 = 1
  static let local: UInt16 = 2
  /// RTA_DST.
  static let destination: UInt16 = 1
  /// RTN_UNICAST: the packet leaves this machine. Routes of other types belong to an address of this machine or of a
  /// group.
  static let unicast: UInt8 = 1
  /// RTM_F_CLONED: the route is a cache entry.
  static let isCloned: UInt32 = 0x200

  /// ENETUNREACH and EHOSTUNREACH.
  static let unreachable: [Int32] = [101, 113]

  /// Messages and attributes are aligned to four bytes.
  static func aligned(_ length: Int) -> Int { (length + 3) & ~3 }

  /// Reads a number in host byte order; nil if it would extend beyond the end.
  static func number<Number: FixedWidthInteger & BitwiseCopyable>(
    _ bytes: Span<UInt8>, at offset: Int, as type: Number.Type
  ) -> Number? {
    guard offset <= bytes.count - MemoryLayout<Number>.size else { return nil }
    // Every bit pattern is a valid number.
    return unsafe bytes.bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: type)
  }

  /// Appends a number in host byte order.
  static func append(_ number: some FixedWidthInteger, to message: inout [UInt8]) {
    unsafe withUnsafeBytes(of: number) { unsafe message.append(contentsOf: $0) }
  }
}
