import ByteStreams
import HTTPCodec
import ProxyCodec
import TestSupport
import Testing

@Suite struct ConnectHandshakeTests {
  private func transcript(
    of pieces: [[UInt8]], _ credentials: ProxyCredentials? = nil, limits: HTTPLimits = HTTPLimits()
  ) -> [String] {
    var handshake = ConnectHandshake(to: "a.b:443", credentials: credentials, limits: limits)
    var input = ByteQueue()
    var output = ByteQueue()
    var events: [String] = []
    var isOpen = false
    for piece in [[]] + pieces {
      input.append(piece.span)
      if isOpen { continue }
      do throws(ProxyError) {
        isOpen = try handshake.advance(&input, into: &output)
      } catch {
        return events + [error.description]
      }
      if !output.isEmpty { events.append("sent \(output.bytes.text())") }
      output.removeAll()
      if isOpen { events.append("open") }
    }
    if isOpen, !input.isEmpty { events.append("left \(input.bytes.text())") }
    return events
  }

  private func transcript(of response: String, _ credentials: ProxyCredentials? = nil) -> [String] {
    transcript(of: [Array(response.utf8)], credentials)
  }

  private let asked = "sent CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n\r\n"

  /// Some proxies still respond in HTTP/1.0, and some send a length, which must be ignored (RFC 9110 §9.3.6).
  @Test(arguments: [
    "HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200 OK\r\nProxy-agent: x\r\n\r\n", "HTTP/1.1 204\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
  ])
  func opensATunnel(response: String) {
    expectEvents([asked, "open"], from: response) { transcript(of: $0) }
    #expect(transcript(of: response + "rest") == [asked, "open", "left rest"])
  }

  @Test func sendsItsCredentials() {
    let sent = transcript(of: "", ProxyCredentials(username: "Aladdin", password: "open sesame"))
    #expect(
      sent == [
        "sent CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n"
          + "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"
      ])
  }

  @Test(arguments: [
    ("HTTP/1.1 403 Forbidden\r\n\r\n", "responded with 403 Forbidden; a tunnel requires 2xx"),
    ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "responded with 101 Switching Protocols"),
    ("HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n", "responded with 302 Found"),
    ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "requires credentials"),
    ("SSH-2.0-OpenSSH\r\n", "not valid HTTP"), ("\u{5}\u{0}", "not valid HTTP"),
  ])
  func reportsWhyThereIsNoTunnel(response: String, reported: String) {
    let pieces = Array(response.utf8).map { [$0] }
    for events in [transcript(of: response), transcript(of: pieces)] {
      #expect(events.last?.contains(reported) == true, "\(events.last ?? "nothing")")
    }
  }

  @Test(arguments: [401, 407]) func reportsThatCredentialsWereRefused(status: Int) {
    let response = "HTTP/1.1 \(status) Who?\r\n\r\n"
    let reported = transcript(of: response, ProxyCredentials(username: "a", password: "b")).last
    #expect(reported?.contains("rejected the user name or the password") == true)
  }

  @Test(arguments: [
    (["NTLM"], "accepts NTLM only, and only the"),
    (["Negotiate", "NTLM"], "accepts Negotiate, NTLM only, and only the"),
    (
      [#"Digest realm="a, Basic b", nonce=x, qop="auth", Negotiate abc=="#],
      "accepts Digest, Negotiate only, and only the"
    ),
    ([#"Digest realm="a", basic realm="b""#], "user name or the password"),
    (["NTLM", "Basic"], "user name or the password"),
    (["s3cret"], "user name or the password"),
  ])
  func namesTheSchemesOfAProxyThatDoesNotAcceptBasic(challenges: [String], reported: String) {
    let response = "HTTP/1.1 407 No\r\n" + challenges.map { "Proxy-Authenticate: \($0)\r\n" }.joined() + "\r\n"
    let last = transcript(of: response, ProxyCredentials(username: "a", password: "b")).last ?? ""
    #expect(last.contains(reported) && !last.contains("s3cret"), "\(last)")
    guard reported.contains("only") else { return }
    #expect(transcript(of: response).last?.contains(reported) == true, "also without credentials")
  }

  @Test func leavesTheBodyOfARefusalInTheInput() throws {
    var handshake = ConnectHandshake(to: "a.b:443", credentials: nil)
    var input = ByteQueue()
    var output = ByteQueue()
    input.append("HTTP/1.1 403 No\r\nX-Why: policy\r\nContent-Length: 4\r\n\r\nbody")
    do throws(ProxyError) {
      _ = try handshake.advance(&input, into: &output)
      Issue.record("it was refused")
    } catch {
      guard case .refused(let refusal, sentCredentials: false) = error else {
        Issue.record("\(error)")
        return
      }
      #expect(refusal.status == 403 && refusal.field("x-why") == "policy")
    }
    let rest = input.bytes.text()
    #expect(rest == "body")
  }

  /// Attacks: an endless head, and endless interim responses.
  @Test func failsIfTheResponseDoesNotEnd() {
    var limits = HTTPLimits()
    limits.headBytes = 1_000
    let endless = Array(("HTTP/1.1 200 OK\r\nX: " + String(repeating: "x", count: 2_000)).utf8)
    #expect(transcript(of: [endless], limits: limits).last?.contains("larger than 1000 bytes") == true)
    let interim = String(repeating: "HTTP/1.1 102 Processing\r\n\r\n", count: 9)
    #expect(transcript(of: interim).last?.contains("more than 8 interim responses") == true)
  }
}
