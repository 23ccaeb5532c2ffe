import ByteStreams
import CLinux
import Glibc
import Testing

@testable import Host

@Suite struct RouteLookupTests {
  /// 127.0.0.2 is like a secondary address: the kernel sends to it from another address, 127.0.0.1.
  @Test(arguments: ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.2"])
  func anAddressOfThisMachineIsOwn(text: String) throws {
    guard text != "::1" || Self.hasIPv6 else { return }
    #expect(try RouteLookup.isOwn(try #require(IPAddress(text))))
  }

  private static var hasIPv6: Bool { access("/proc/net/if_inet6", F_OK) == 0 }

  /// Reserved for documentation (RFC 5737, RFC 3849).
  @Test(arguments: ["198.51.100.7", "2001:db8::7"])
  func anAddressOfAnotherMachineIsNotOwn(text: String) throws {
    #expect(try !RouteLookup.isOwn(try #require(IPAddress(text))))
  }
}
