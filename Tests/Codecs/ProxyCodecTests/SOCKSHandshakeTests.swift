import ByteStreams
import ProxyCodec
import TestSupport
import Testing

@Suite struct SOCKSHandshakeTests {
  private let credentials = ProxyCredentials(username: "ann", password: "s3")

  /// All sent bytes, then the result, and the remaining input.
  private func transcript(
    of pieces: [[UInt8]], to destination: SOCKSHandshake.Destination = .name("a.b"), port: UInt16 = 443,
    _ credentials: ProxyCredentials? = nil
  ) -> [String] {
    var handshake = SOCKSHandshake(to: destination, port: port, credentials: credentials)
    var input = ByteQueue()
    var output = ByteQueue()
    var isOpen = false
    var failure: ProxyError?
    for piece in [[]] + pieces {
      input.append(piece.span)
      if isOpen || failure != nil { continue }
      do throws(ProxyError) {
        isOpen = try handshake.advance(&input, into: &output)
      } catch {
        failure = error
      }
    }
    var events = ["sent \(output.copyBytes())"]
    if let failure { events.append(failure.description) }
    if isOpen { events.append("open") }
    if isOpen, !input.isEmpty { events.append("left \(input.copyBytes())") }
    return events
  }

  @Test func opensATunnelToAName() {
    let responses: [UInt8] = [5, 0] + [5, 0, 0, 1, 127, 0, 0, 1, 4, 56]
    expectEvents(
      ["sent [5, 1, 0, 5, 1, 0, 3, 3, 97, 46, 98, 1, 187]", "open"], from: responses
    ) { transcript(of: $0) }
  }

  /// The address in the reply may be of any type, and bytes of the tunnel may follow at once.
  @Test(
    arguments: [
      [1, 9, 9, 9, 9], [3, 2, 97, 98], [3, 0], [4] + [UInt8](repeating: 9, count: 16),
    ] as [[UInt8]])
  func leavesBytesAfterTheResponse(address: [UInt8]) {
    let responses: [UInt8] = [5, 0] + [5, 0, 0] + address + [4, 56] + [22, 3]
    #expect(transcript(of: [responses]).suffix(2) == ["open", "left [22, 3]"])
    #expect(transcript(of: responses.map { [$0] }).suffix(2) == ["open", "left [22, 3]"])
  }

  @Test func requestsTunnelsToAddresses() {
    let four = transcript(of: [[5, 0]], to: .address(.ipv4(0x7F00_0001)), port: 80)
    #expect(four == ["sent [5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80]"])
    let six = transcript(of: [[5, 0]], to: .address(.ipv6(high: 0x2001_0DB8 << 32, low: 1, scope: 0)), port: 80)
    #expect(six == ["sent [5, 1, 0, 5, 1, 0, 4, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80]"])
  }

  @Test func sendsItsCredentials() {
    let responses: [UInt8] = [5, 2] + [1, 0] + [5, 0, 0, 1, 127, 0, 0, 1, 4, 56]
    expectEvents(
      [
        "sent [5, 2, 0, 2, 1, 3, 97, 110, 110, 2, 115, 51, 5, 1, 0, 3, 3, 97, 46, 98, 1, 187]",
        "open",
      ], from: responses
    ) { transcript(of: $0, credentials) }
  }

  @Test func sendsNoCredentialsUnlessTheProxyRequestsThem() {
    #expect(transcript(of: [[5, 0]], credentials) == ["sent [5, 2, 0, 2, 5, 1, 0, 3, 3, 97, 46, 98, 1, 187]"])
  }

  @Test(
    arguments: [
      ([5, 255], "requires credentials"), ([5, 2], "chose authentication method 2, which was not offered"),
      ([5, 1], "method 1"), ([4, 0], "does not speak SOCKS5: its reply begins with byte 4"),
      (Array("HTTP/1.1 400".utf8), "speaks HTTP, not SOCKS5"),
      ([5, 0, 5, 1], "general failure (1)"), ([5, 0, 5, 2], "not allowed by its rules (2)"),
      ([5, 0, 5, 3], "network unreachable"), ([5, 0, 5, 4], "host unreachable"), ([5, 0, 5, 5], "connection refused"),
      ([5, 0, 5, 6], "time to live"), ([5, 0, 5, 7], "command not supported"), ([5, 0, 5, 8], "address type not"),
      ([5, 0, 5, 91], "reply 91"), ([5, 0, 4, 0], "does not speak SOCKS5"),
      ([5, 0, 5, 0, 0, 2, 0], "address type 2"),
    ] as [([UInt8], String)])
  func reportsWhyThereIsNoTunnel(responses: [UInt8], told: String) {
    for pieces in [[responses], responses.map { [$0] }] {
      let last = transcript(of: pieces).last
      #expect(last?.contains(told) == true, "\(last ?? "nothing")")
    }
  }

  @Test func reportsThatCredentialsWereRefused() {
    #expect(
      transcript(of: [[5, 2, 1, 1]], credentials).last?.contains("rejected the user name or the password") == true)
    #expect(
      transcript(of: [[5, 255]], credentials).last?.contains("accepts no supported authentication method") == true)
    #expect(transcript(of: [[5, 2, 5, 0]], credentials).last?.contains("does not speak SOCKS5") == true)
  }

  @Test func refusesCredentialsThatItCannotSend() {
    let long = String(repeating: "x", count: 256)
    #expect(ProxyCredentials(username: "", password: "x").problem(forSOCKS: true) != nil)
    #expect(ProxyCredentials(username: "x", password: "").problem(forSOCKS: true) != nil)
    #expect(ProxyCredentials(username: "x", password: long).problem(forSOCKS: true) != nil)
    #expect(ProxyCredentials(username: "x:y", password: "z").problem(forSOCKS: true) == nil)
    #expect(ProxyCredentials(username: "x:y", password: "z").problem(forSOCKS: false) != nil)
    #expect(ProxyCredentials(username: "x", password: "z\r\n").problem(forSOCKS: false) != nil)
    #expect(ProxyCredentials(username: "x", password: long).problem(forSOCKS: false) == nil)
  }
}
