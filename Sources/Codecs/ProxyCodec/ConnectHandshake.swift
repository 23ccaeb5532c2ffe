import ByteStreams
import HTTPCodec

/// The handshake with an HTTP proxy: CONNECT (RFC 9110 §9.3.6).
package struct ConnectHandshake: ProxyHandshake, ~Copyable {
  private let authority: String
  private let credentials: ProxyCredentials?
  private var decoder: HTTPResponseHeadDecoder
  private var hasSentRequest = false
  private var interimResponses = 0

  /// Maximum number of interim responses that are skipped. Without the limit, a proxy could send them endlessly.
  private static var interimLimit: Int { 8 }

  /// `authority`: host and port in visible ASCII, an IPv6 address in brackets. `limits` applies to the response head.
  package init(to authority: String, credentials: ProxyCredentials?, limits: HTTPLimits = HTTPLimits()) {
    precondition(authority.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }, "the authority is not valid")
    precondition(credentials?.problem(forSOCKS: false) == nil, "the credentials are not valid")
    self.authority = authority
    self.credentials = credentials
    decoder = HTTPResponseHeadDecoder(limits: limits)
  }

  package mutating func advance(
    _ input: inout ByteQueue, into output: inout ByteQueue
  ) throws(ProxyError) -> Bool {
    if !hasSentRequest {
      hasSentRequest = true
      writeRequest(into: &output)
    }
    while true {
      do throws(HTTPProtocolError) {
        guard try decoder.take(from: &input) else { return false }
      } catch {
        throw .notHTTP(error)
      }
      switch decoder.status.rawValue {
      // Content-Length and Transfer-Encoding of a 2xx response are ignored: the tunnel begins after its head (RFC 9110
      // §9.3.6).
      case 200..<300: return true
      case 100, 102..<200: break
      // A 101 is also a refusal, since no other protocol was requested.
      default: throw .refused(HTTPRefusal(decoder), sentCredentials: credentials != nil)
      }
      interimResponses += 1
      guard interimResponses <= Self.interimLimit else { throw .tooManyInterimResponses(limit: Self.interimLimit) }
      decoder.begin()
    }
  }

  private func writeRequest(into output: inout ByteQueue) {
    output.append("CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n")
    if let credentials { output.append("Proxy-Authorization: \(credentials.basic)\r\n") }
    output.append("\r\n")
  }
}
