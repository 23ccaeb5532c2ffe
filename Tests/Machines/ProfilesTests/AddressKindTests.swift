import ByteStreams
import Testing

@testable import Profiles

/// The addresses that a client's session must not reach. The threat is server-side request forgery.
@Suite struct AddressKindTests {
  @Test(arguments: [
    ("0.0.0.0", AddressKind.unspecified), ("0.1.2.3", .unspecified), ("127.0.0.1", .loopback),
    ("127.255.255.254", .loopback), ("10.0.0.1", .private), ("172.16.0.1", .private), ("172.31.255.255", .private),
    ("192.168.1.1", .private), ("169.254.0.1", .linkLocal), ("169.254.169.254", .metadata),
    ("100.100.100.200", .metadata), ("192.0.0.192", .metadata), ("168.63.129.16", .metadata), ("100.64.0.1", .shared),
    ("100.127.255.255", .shared), ("192.0.0.8", .reserved), ("192.88.99.1", .reserved),
    ("192.0.2.1", .documentation), ("198.51.100.1", .documentation), ("203.0.113.1", .documentation),
    ("198.18.0.1", .benchmarking), ("198.19.255.255", .benchmarking), ("224.0.0.1", .multicast),
    ("239.1.2.3", .multicast), ("240.0.0.1", .reserved), ("255.255.255.255", .broadcast),
    ("::", .unspecified), ("::1", .loopback), ("::7f00:1", .loopback), ("::ffff:127.0.0.1", .loopback),
    ("::ffff:10.0.0.1", .private), ("::ffff:0:127.0.0.1", .loopback), ("64:ff9b::127.0.0.1", .loopback),
    ("64:ff9b::a9fe:a9fe", .metadata), ("2002:7f00:1::", .loopback), ("2002:a00:1::1", .private),
    ("2001:0:4136:e378:8000:63bf:80ff:fffe", .loopback), ("2001:db8::5efe:127.0.0.1", .loopback),
    ("fc00::1", .private), ("fdff::1", .private), ("fd00:ec2::254", .metadata), ("fd20:ce::254", .metadata),
    ("fe80::1", .linkLocal), ("febf::1", .linkLocal), ("fec0::1", .private), ("ff02::1", .multicast),
    ("2001:db8::1", .documentation), ("3fff::1", .documentation), ("2001:2::1", .benchmarking),
    ("2001:10::1", .reserved), ("64:ff9b:1::1", .reserved), ("100::1", .reserved), ("4000::1", .reserved),
  ])
  func theAddressIsNotPublic(text: String, kind: AddressKind) throws {
    #expect(AddressKind(of: try #require(IPAddress(text))) == kind)
  }

  @Test(arguments: [
    "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
    "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001::8a",
    "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1", "2001:200::1", "2a00::5efe:1.1.1.1",
    "2001:0:4136:e378:8000:63bf:fefe:fefe",
  ])
  func theAddressIsPublic(text: String) throws { #expect(AddressKind(of: try #require(IPAddress(text))) == nil) }
}

@Suite struct ConnectionRulesTests {
  /// Texts that are not addresses by RFC 3986, but that the C library reads as addresses.
  @Test(arguments: [
    "127.0.0.1", "127.0.0.1.", "000000000000000000177.0.0.1", "2130706433", "0x7f000001", "0X7F000001", "017700000001",
    "127.1", "127.0.1",
    "0177.0.0.1", "0x7f.0.0.1", "0x7f.1", "0", "0.0.0.0", "169.254.169.254", "2852039166", "0xa9fea9fe",
    "0xa9.0xfe.43518", "10.1", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "fe80::1%eth0", "localhost", "LOCALHOST",
    "localhost.", "a.localhost", "ip6-loopback",
  ])
  func refusesTheHostBeforeTheLookUp(host: String) {
    #expect(ConnectionRules().refusal(ofHost: host, isProxied: false) != nil)
  }

  @Test(arguments: [
    "feed.example", "1.1.1.1", "0x01010101", "localhost.example", "127.0.0.1.nip.io", "1.2.3.4.5", "08.1.1.1",
    "0x.1.1.1", "300.1.1.1",
  ])
  func leavesNamesAndPublicAddressesToTheLookUp(host: String) {
    #expect(ConnectionRules().refusal(ofHost: host, isProxied: false) == nil)
  }

  @Test func allowsTheAddressesOfTheProfile() throws {
    var rules = ConnectionRules()
    rules.allowed = try ["10.0.0.0/8", "::1"].map { try #require(AddressBlock($0)) }
    #expect(rules.refusal(of: .ipv4(0x0A01_0203)) == nil)
    #expect(rules.refusal(of: try #require(IPAddress("::ffff:10.1.2.3"))) == nil)
    #expect(rules.refusal(ofHost: "localhost", isProxied: false) == nil)
    #expect(rules.refusal(of: .ipv4(0x0B01_0203)) == nil)
    #expect(
      rules.refusal(of: .ipv4(0x7F00_0001))
        == "the address is loopback, which is refused unless 'addresses.allow' of the profile has it")
  }

  @Test func refusesAnAddressOfThisMachine() {
    var rules = ConnectionRules()
    #expect(rules.refusal(of: .ipv4(0x0101_0101)) == nil)
    #expect(rules.refusal(of: .ipv4(0x0101_0101)) { true }?.contains("belongs to this machine") == true)
    #expect(rules.refusal(of: .ipv4(0x0101_0101)) { throw NotKnown() }?.contains("cannot be determined") == true)
    rules.allowed = [AddressBlock("1.1.1.1")].compactMap(\.self)
    #expect(rules.refusal(of: .ipv4(0x0101_0101)) { throw NotKnown() } == nil)
  }

  private struct NotKnown: Error {}

  /// The interface identifier of ISATAP may follow any prefix (RFC 5214 §6.1). A public address in it does not make a
  /// private prefix public.
  @Test(arguments: [
    "fd00::5efe:808:808", "fd12:3456::200:5efe:808:808", "fe80::5efe:8.8.8.8", "ff02::5efe:808:808",
    "2001:db8::5efe:1.1.1.1", "4000::5efe:1.1.1.1", "2a00::5efe:10.0.0.1", "2a00::200:5efe:127.0.0.1",
  ])
  func anISATAPIdentifierMakesNoAddressPublic(text: String) throws {
    #expect(AddressKind(of: try #require(IPAddress(text))) != nil)
  }

  @Test func aListOfHostsAppliesToEveryConnection() throws {
    var rules = ConnectionRules()
    rules.hosts = try HostPatterns(["feed.example", "*.feeds.example"])
    for host in ["feed.example", "FEED.example.", "a.feeds.example", "a.b.feeds.example"] {
      #expect(rules.refusal(ofHost: host, isProxied: true) == nil, "\(host)")
    }
    for host in ["feeds.example", "xfeed.example", "feed.example.org", "1.1.1.1"] {
      #expect(rules.refusal(ofHost: host, isProxied: false) != nil, "\(host)")
    }
  }

  @Test func aProxyNeedsAListOfHosts() {
    #expect(ConnectionRules().refusal(ofHost: "feed.example", isProxied: true) != nil)
  }

  @Test(arguments: ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::1/129", "x", "10.0.0/8", "10.0.0.0/8/8"])
  func refusesAnInvalidAddressBlock(text: String) { #expect(AddressBlock(text) == nil) }

  @Test(arguments: ["", ".", ".a", "*a", "a*", "*.", "a/b", "a:80", "[::1]", "a b"])
  func refusesAnInvalidPatternOfHosts(text: String) {
    #expect(throws: HostPatternError(index: 1)) { try HostPatterns(["a", text]) }
  }
}
