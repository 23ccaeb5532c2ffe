import ByteStreams
import HTTPCodec

/// Asks an HTTP proxy for a tunnel: CONNECT (RFC 9110 §9.3.6).
package struct ConnectHandshake: ProxyHandshake, ~Copyable {
  private let authority: String
  private let credentials: ProxyCredentials?
  private var decoder: HTTPResponseHeadDecoder
  private var hasAsked = false
  private var interimAnswers = 0

  /// Interim answers that are passed over. Stops: a proxy that sends them without end.
  private static var interimLimit: Int { 8 }

  /// `authority`: host and port, an IPv6 address in brackets, in visible ASCII. `limits`: for the answer's head.
  package init(to authority: String, credentials: ProxyCredentials?, limits: HTTPLimits = HTTPLimits()) {
    precondition(authority.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }, "the authority was not looked at")
    precondition(credentials?.problem(forSOCKS: false) == nil, "the credentials were not looked at")
    self.authority = authority
    self.credentials = credentials
    decoder = HTTPResponseHeadDecoder(limits: limits)
  }

  package mutating func advance(
    _ input: inout ByteQueue, into output: inout ByteQueue
  ) throws(ProxyError) -> Bool {
    if !hasAsked {
      hasAsked = true
      ask(into: &output)
    }
    while true {
      do throws(HTTPProtocolError) {
        guard try decoder.take(from: &input) else { return false }
      } catch {
        throw .notHTTP(error)
      }
      switch decoder.status.rawValue {
      // Whatever a 2xx answer says of its length is to be ignored: the tunnel begins behind its head.
      case 200..<300: return true
      case 100, 102..<200: break
      // 101 too: nobody asked for another protocol.
      default: throw .refused(HTTPRefusal(decoder), sentCredentials: credentials != nil)
      }
      interimAnswers += 1
      guard interimAnswers <= Self.interimLimit else { throw .tooManyInterimAnswers(limit: Self.interimLimit) }
      decoder.begin()
    }
  }

  private func ask(into output: inout ByteQueue) {
    output.append("CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n")
    if let credentials { output.append("Proxy-Authorization: \(credentials.basic)\r\n") }
    output.append("\r\n")
  }
}
