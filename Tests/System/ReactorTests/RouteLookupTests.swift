import ByteStreams
import CLinux
import Glibc
import Testing

@testable import Reactor

@Suite struct RouteLookupTests {
  /// 127.0.0.2 is like a secondary address: the kernel sends to it from another one, 127.0.0.1.
  @Test(arguments: ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.2"])
  func anAddressOfThisMachineIsOwn(text: String) throws {
    guard text != "::1" || Self.hasIPv6 else { return }
    #expect(try RouteLookup.isOwn(try #require(IPAddress(text))))
  }

  private static var hasIPv6: Bool { access("/proc/net/if_inet6", F_OK) == 0 }

  /// Reserved for documentation (RFC 5737, RFC 3849).
  @Test(arguments: ["198.51.100.7", "2001:db8::7"])
  func anotherAddressIsNot(text: String) throws {
    #expect(try !RouteLookup.isOwn(try #require(IPAddress(text))))
  }

  @Test func whatIsNotKnownIsAnError() throws {
    let request = RouteLookup.request(for: .ipv4(0x7F00_0001))
    #expect(request.count == 36)
    for count in 0..<20 {
      #expect(throws: SystemError.self) { try RouteLookup.isOwn(in: [UInt8](repeating: 0, count: count).span) }
    }
    func error(_ code: Int32) -> [UInt8] {
      var message = [UInt8](repeating: 0, count: 36)
      message[4] = 2
      withUnsafeBytes(of: -code) { message.replaceSubrange(16..<20, with: $0) }
      return message
    }
    #expect(try !RouteLookup.isOwn(in: error(ENETUNREACH).span), "no connection is possible")
    for code in [EPERM, EINVAL, 0] { #expect(throws: SystemError.self) { try RouteLookup.isOwn(in: error(code).span) } }
  }

  @Test(arguments: [(UInt8(1), false), (2, true), (3, true), (4, true), (5, true)])
  func onlyWhatLeavesThisMachineIsAnother(type: UInt8, isOwn: Bool) throws {
    var message = [UInt8](repeating: 0, count: 28)
    message[4] = 24
    message[23] = type
    #expect(try RouteLookup.isOwn(in: message.span) == isOwn)
  }
}
