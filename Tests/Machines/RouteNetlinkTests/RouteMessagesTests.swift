import ByteStreams
import TestSupport
import Testing

@testable import RouteNetlink

/// Datagrams for `ip monitor` from Linux 6 on x86-64, in hexadecimal, without most of their attributes.
private enum Captured {
  /// `ip addr add 10.99.3.1/24`, and its removal.
  static let newIPv4 =
    "5000000014000000aaac016b694600000218800003000000080001000a630301080002000a6303010900030064626330000000000800080080"
    + "00000014000600ffffffffffffffff83fe080083fe0800"
  static let deletedIPv4 = newIPv4.replacingType(with: "15")
  /// `ip -6 addr add fd99::1/64 nodad`.
  static let newIPv6 =
    "480000001400000000000000000000000a4082000300000014000100fd99000000000000000000000000000114000600ffffffffffffffffac"
    + "fe0800acfe08000800080082000000"
  /// A link-local address after duplicate address detection.
  static let newLinkLocal =
    "500000001400000000000000000000000a4080fd0200000014000100fe800000000000005415acfffe6d2ee714000600ffffffffffffffff5b"
    + "fe08005bfe0800080008008000000005000b0003000000"
  /// `ip route add 10.98.0.0/16 via 10.99.3.2`, and its removal.
  static let newRoute =
    "3c00000018000006abac016b6d46000002100000fe0300010000000008000f00fe000000080001000a620000080005000a6303020800040003"
    + "000000"
  static let deletedRoute = newRoute.replacingType(with: "19")
  /// A route of the local table, added with an address, and a multicast route, added with a link.
  static let localRoute =
    "3c00000018000006000000000000000002200000ff02fe020000000008000f00ff000000080001000a630301080007000a6303010800040003"
    + "000000"
  static let multicastRoute =
    "740000001800000600000000000000000a080000ff0200050000000008000f00ff00000014000100ff00000000000000000000000000000008"
    + "00060000010000080004000300000024000c0000000000000000000000000000000000000000000000000000000000000000000500140000000000"
  /// `ip link set up` before and after the carrier was detected, without attributes.
  static let linkWithoutCarrier = "20000000100000000000000000000000000001000300000003100100" + "00000000"
  static let linkUp = "20000000100000000000000000000000000001000300000043100100" + "00000000"
  static let linkRemoved = linkUp.replacingType(with: "11")
  static let loopback = "20000000100000000000000000000000000004030100000049000100" + "00000000"
}

extension String {
  fileprivate func replacingType(with type: String) -> String { prefix(8) + type + dropFirst(10) }

  fileprivate var bytes: [UInt8] {
    var rest = self[...]
    var bytes: [UInt8] = []
    while !rest.isEmpty {
      bytes.append(UInt8(rest.prefix(2), radix: 16)!)
      rest = rest.dropFirst(2)
    }
    return bytes
  }
}

@Suite struct RouteMessagesTests {
  private let ipv4 = IPAddress.ipv4(0x0A63_0301)

  private func events(_ bytes: [UInt8]) -> [NetworkEvent] { RouteMessages.events(in: bytes.span) }

  @Test func readsAddressesOfBothFamilies() {
    #expect(events(Captured.newIPv4.bytes) == [.address(ipv4, isPresent: true)])
    #expect(events(Captured.deletedIPv4.bytes) == [.address(ipv4, isPresent: false)])
    let ipv6 = IPAddress.ipv6(high: 0xFD99_0000_0000_0000, low: 1, scope: 0)
    #expect(events(Captured.newIPv6.bytes) == [.address(ipv6, isPresent: true)])
    let local = IPAddress.ipv6(high: 0xFE80_0000_0000_0000, low: 0x5415_ACFF_FE6D_2EE7, scope: 2)
    #expect(events(Captured.newLinkLocal.bytes) == [.address(local, isPresent: true)])
  }

  @Test func readsTheLocalAddressOfAPointToPointLink() {
    // Here, IFA_ADDRESS (1) is the peer's address and IFA_LOCAL (2) is ours.
    var bytes = Captured.newIPv4.bytes
    bytes[16 + 8 + 4 + 3] = 0xEE
    #expect(events(bytes) == [.address(ipv4, isPresent: true)])
  }

  @Test func waitsForTheEndOfDuplicateAddressDetection() {
    var bytes = Captured.newIPv6.bytes
    bytes[16 + 2] |= 0x40
    #expect(events(bytes) == [])
  }

  @Test func readsUnicastRoutesOnly() {
    #expect(events(Captured.newRoute.bytes) == [.route(isPresent: true)])
    #expect(events(Captured.deletedRoute.bytes) == [.route(isPresent: false)])
    #expect(events(Captured.localRoute.bytes) == [])
    #expect(events(Captured.multicastRoute.bytes) == [])
    var cloned = Captured.newRoute.bytes
    cloned[16 + 9] = 0x02
    #expect(events(cloned) == [])
  }

  @Test func readsLinks() {
    #expect(events(Captured.linkWithoutCarrier.bytes) == [.link(3, .down)])
    #expect(events(Captured.linkUp.bytes) == [.link(3, .up)])
    #expect(events(Captured.linkRemoved.bytes) == [.link(3, .removed)])
    #expect(events(Captured.loopback.bytes) == [])
  }

  @Test func readsSeveralMessagesOfOneDatagram() {
    let bytes = Captured.linkUp.bytes + Captured.newIPv4.bytes + Captured.localRoute.bytes + Captured.newRoute.bytes
    #expect(events(bytes) == [.link(3, .up), .address(ipv4, isPresent: true), .route(isPresent: true)])
  }

  @Test func reportsLostEvents() {
    #expect(events([16, 0, 0, 0, 4, 0, 0, 0] + [UInt8](repeating: 0, count: 8)) == [.overrun])
  }

  // MARK: Wrong lengths

  @Test func stopsAtAWrongLength() {
    let good = Captured.linkUp.bytes
    for length in [0, 1, 15, 33, 0x7FFF_FFFF, 0xFFFF_FFFF] as [UInt32] {
      var bad = Captured.newRoute.bytes
      for index in 0..<4 { bad[index] = UInt8(truncatingIfNeeded: length >> (8 * UInt32(index))) }
      let count = events(good + bad).count
      #expect(count == 1 || (length == 33 && count <= 2), "length \(length)")
    }
  }

  @Test func readsNothingBeyondTheEndOfIncompleteInput() {
    for text in [Captured.newIPv4, Captured.newIPv6, Captured.newRoute, Captured.linkUp] {
      let whole = text.bytes
      for count in 0..<whole.count {
        #expect(events(Array(whole[..<count])) == [], "cut to \(count)")
        // The same message with a length that fits the remaining bytes.
        var short = Array(whole[..<count])
        guard count >= 16 else { continue }
        short[0] = UInt8(count)
        #expect(events(short).count <= 1)
      }
    }
  }

  @Test func anAddressOfTheWrongLengthIsIgnored() {
    var bytes = Captured.newIPv4.bytes
    for offset in [24, 32] { bytes[offset] = 6 }
    #expect(events(bytes) == [])
    // An attribute of length 0 could be read endlessly.
    for offset in [24, 32] { bytes[offset] = 0 }
    #expect(events(bytes) == [])
  }

  @Test func randomInputDoesNotCrashTheParser() {
    var random = SeededGenerator(seed: 7)
    let seeds = [Captured.newIPv4, Captured.newIPv6, Captured.newRoute, Captured.linkUp].map(\.bytes)
    for round in 0..<50_000 {
      var bytes = seeds[round % seeds.count] + seeds[(round / 4) % seeds.count]
      for _ in 0..<Int.random(in: 1...8, using: &random) {
        bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
      }
      bytes.removeLast(Int.random(in: 0..<bytes.count, using: &random))
      #expect(events(bytes).count <= bytes.count / 16)
    }
  }
}
