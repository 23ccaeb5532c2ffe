import ByteStreams
import Testing

@testable import RouteNetlink

@Suite struct RouteQueryTests {
  /// The requests of `ip route get` on a little-endian machine.
  @Test func aRequestNamesTheWholeAddress() throws {
    let ipv4 = RouteQuery.request(for: .ipv4(0xC633_6407))
    #expect(
      ipv4 == [36, 0, 0, 0, 26, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0]
        + [198, 51, 100, 7])
    let ipv6 = RouteQuery.request(for: try #require(IPAddress("2001:db8::7")))
    #expect(ipv6.count == 48)
    #expect(Array(ipv6[16..<18]) == [10, 128])
    #expect(Array(ipv6[28...]) == [20, 0, 1, 0, 0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7])
  }

  @Test func incompleteAndUnknownRepliesAreMalformed() {
    for count in 0..<40 { #expect(RouteQuery.read([UInt8](repeating: 0, count: count).span) == .malformed) }
    for message in [route(type: 1), error(101)] {
      let needed = message[4] == 24 ? 28 : 20
      for count in 0..<needed { #expect(RouteQuery.read(message.span.extracting(first: count)) == .malformed) }
    }
    for code: Int32 in [0, -1, .min] { #expect(RouteQuery.read(error(code).span) == .malformed) }
  }

  @Test func withoutARouteNoConnectionIsPossible() {
    for code: Int32 in [101, 113] { #expect(RouteQuery.read(error(code).span) == .unreachable) }
    for code: Int32 in [1, 22, .max] { #expect(RouteQuery.read(error(code).span) == .failed(code)) }
  }

  @Test(arguments: [(UInt8(1), RouteQuery.Response.other), (2, .own), (3, .own), (4, .own), (5, .own)])
  func onlyAnAddressThatLeavesThisMachineIsRemote(type: UInt8, response: RouteQuery.Response) {
    #expect(RouteQuery.read(route(type: type).span) == response)
  }

  private func route(type: UInt8) -> [UInt8] {
    var message = [UInt8](repeating: 0, count: 28)
    message[4] = 24
    message[23] = type
    return message
  }

  private func error(_ code: Int32) -> [UInt8] {
    var message = [UInt8](repeating: 0, count: 36)
    message[4] = 2
    withUnsafeBytes(of: 0 &- code) { message.replaceSubrange(16..<20, with: $0) }
    return message
  }
}
