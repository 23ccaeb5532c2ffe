import ByteStreams
import ProxyCodec
import TestSupport
import Testing

/// Versions 1 and 2, however they are split. The rules are from HAProxy's proxy-protocol.txt.
@Suite struct ProxyHeaderTests {
  /// An expected address, in the form of `transcript`.
  private func header(_ text: String) -> String {
    let words = text.split(separator: " ")
    return ([IPAddress(String(words[0])).map { "\($0)" } ?? "nobody"] + words.dropFirst().map(String.init))
      .joined(separator: " ")
  }

  /// The client and the length of the header, or why the header is refused.
  private func transcript(of pieces: [[UInt8]]) -> [String] {
    var input: [UInt8] = []
    for piece in pieces {
      input += piece
      do throws(ProxyHeaderError) {
        guard let header = try ProxyHeader.read(input.span) else { continue }
        return ["\(header.address.map { "\($0)" } ?? "nobody") \(header.port) \(header.length)"]
      } catch {
        return [error.description]
      }
    }
    return ["incomplete"]
  }

  private static let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
  private static let four: [UInt8] = [203, 0, 113, 7, 127, 0, 0, 1, 0x12, 0x67, 0, 80]
  private static let six: [UInt8] =
    [0x20, 0x01, 0x0D, 0xB8] + [UInt8](repeating: 0, count: 11) + [7]
    + [UInt8](repeating: 0, count: 16) + [0x12, 0x67, 0, 80]

  private static func binary(_ command: UInt8 = 0x21, _ family: UInt8 = 0x11, _ body: [UInt8] = four) -> [UInt8] {
    signature + [command, family, UInt8(body.count >> 8), UInt8(body.count & 255)] + body
  }

  @Test(arguments: [
    ("PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n", "203.0.113.7 4711 42"),
    ("PROXY TCP6 2001:db8::7 ::1 4711 80\r\n", "2001:db8::7 4711 36"),
    ("PROXY TCP6 ::ffff:203.0.113.7 ::1 65535 0\r\n", "203.0.113.7 65535 43"),
    ("PROXY UNKNOWN\r\n", "nobody 0 15"),
    ("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", "nobody 0 59"),
  ])
  func readsALine(line: String, header: String) {
    expectEvents([self.header(header)], from: line, trailing: "GET / HTTP/1.1\r\n") { transcript(of: $0) }
  }

  @Test func readsTheLongestValidLineAndNoLongerLine() {
    let address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    let longest = "PROXY TCP6 \(address) \(address) 65535 65535\r\n"
    expectEvents([header("\(address) 65535 104")], from: longest) { transcript(of: $0) }
    let unknown = "PROXY UNKNOWN " + String(repeating: "x", count: 91) + "\r\n"
    #expect(unknown.utf8.count == 107)
    expectEvents([header("nobody 0 107")], from: unknown) { transcript(of: $0) }
    let reason = "the header of the PROXY protocol is malformed: its line has more than 107 bytes"
    expectEvents([reason], from: "PROXY UNKNOWN " + String(repeating: "x", count: 93)) { transcript(of: $0) }
  }

  @Test(arguments: [
    ("PROXY TCP4 203.0.113.7 127.0.0.1 4711\r\n", "a port is not valid"),
    ("PROXY TCP4 203.0.113.7 127.0.0.1 4711 80 \r\n", "a port is not valid"),
    ("PROXY TCP4 203.0.113.7 127.0.0.1 04711 80\r\n", "a port is not valid"),
    ("PROXY TCP4 203.0.113.7 127.0.0.1 4711 65536\r\n", "a port is not valid"),
    ("PROXY TCP4 203.0.113.7  127.0.0.1 4711 80\r\n", "an address is not valid"),
    ("PROXY TCP4 2001:db8::7 ::1 4711 80\r\n", "an address is not valid"),
    ("PROXY TCP6 203.0.113.7 127.0.0.1 4711 80\r\n", "an address is not valid"),
    ("PROXY TCP4 203.0.113.7 nowhere 4711 80\r\n", "an address is not valid"),
    ("PROXY UDP4 203.0.113.7 127.0.0.1 4711 80\r\n", "its protocol is not TCP4, TCP6 or UNKNOWN"),
    ("PROXY unknown\r\n", "its protocol is not TCP4, TCP6 or UNKNOWN"),
    ("PROXY UNKNOWN\rX", "CR is not followed by LF"),
  ])
  func refusesAnInvalidLine(line: String, reason: String) {
    expectEvents(["the header of the PROXY protocol is malformed: \(reason)"], from: line) { transcript(of: $0) }
  }

  @Test(arguments: ["GET / HTTP/1.1\r\n", "PROXZ", "proxy TCP4 ", "\u{16}\u{3}\u{1}", "\r\n\r\nQ"])
  func refusesAnInvalidHeaderAtItsFirstWrongByte(text: String) {
    let bytes = Array(text.utf8)
    #expect(transcript(of: [bytes]) == [ProxyHeaderError.noHeader.description])
  }

  @Test func readsTheBinaryForm() {
    expectEvents([header("203.0.113.7 4711 28")], from: Self.binary(), trailing: [1, 2, 3]) { transcript(of: $0) }
    expectEvents([header("2001:db8::7 4711 52")], from: Self.binary(0x21, 0x21, Self.six), trailing: [1]) {
      transcript(of: $0)
    }
    let extensions: [UInt8] = [4, 0, 2, 9, 9, 0x20, 0, 0]
    expectEvents([header("203.0.113.7 4711 36")], from: Self.binary(0x21, 0x11, Self.four + extensions)) {
      transcript(of: $0)
    }
  }

  /// The proxy connects for itself, does not know the client, or has a client without an IP address. The reader still
  /// learns the length of the header.
  @Test func readsTheBinaryFormWithoutAClient() {
    expectEvents([header("nobody 0 28")], from: Self.binary(0x20), trailing: [1]) { transcript(of: $0) }
    expectEvents([header("nobody 0 16")], from: Self.binary(0x21, 0, [])) { transcript(of: $0) }
    expectEvents([header("nobody 0 20")], from: Self.binary(0x21, 0, [1, 2, 3, 4])) { transcript(of: $0) }
    let local = [UInt8](repeating: 0x2F, count: 216)
    expectEvents([header("nobody 0 232")], from: Self.binary(0x21, 0x31, local)) { transcript(of: $0) }
  }

  @Test func refusesAMalformedBinaryForm() {
    for (bytes, reason) in [
      (Self.binary(0x11), "its version or command is not known"),
      (Self.binary(0x22), "its version or command is not known"),
      (Self.binary(0x21, 0x12), "its address family or transport is not known"),
      (Self.binary(0x21, 0x11, Array(Self.four.dropLast())), "its addresses are cut off"),
      (Self.binary(0x21, 0x21, Self.four), "its addresses are cut off"),
      (Self.binary(0x21, 0x11, Self.four + [4, 0]), "an extension is cut off"),
      (Self.binary(0x21, 0x11, Self.four + [4, 0, 2, 9]), "an extension is cut off"),
      (Self.binary(0x21, 0x11, [UInt8](repeating: 0, count: 4313)), "it has more than 4328 bytes"),
    ] {
      #expect(transcript(of: [bytes]) == ["the header of the PROXY protocol is malformed: \(reason)"])
      #expect(transcript(of: bytes.map { [$0] }) == ["the header of the PROXY protocol is malformed: \(reason)"])
    }
  }

  /// A length that is too large is refused after the first 16 bytes.
  @Test func refusesALengthBeforeItsBytesArrive() {
    let head = Array(Self.binary(0x21, 0x11, [UInt8](repeating: 0, count: 5000)).prefix(16))
    #expect(transcript(of: [head]) != ["incomplete"])
    #expect(ProxyHeader.maximumLength == 4328)
  }
}
