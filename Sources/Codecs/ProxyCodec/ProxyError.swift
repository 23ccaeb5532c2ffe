import ByteStreams
import HTTPCodec

/// Why a proxy did not open a tunnel.
package enum ProxyError: Error, Sendable, CustomStringConvertible {
  // HTTP CONNECT (RFC 9110 §9.3.6).
  /// The response was not 2xx. Its body follows.
  case refused(HTTPRefusal, sentCredentials: Bool)
  case notHTTP(HTTPProtocolError)
  case tooManyInterimResponses(limit: Int)

  // SOCKS5 (RFC 1928, RFC 1929).
  /// The first byte of a reply. It must be 5, or 1 in the reply to credentials.
  case notSOCKS5(UInt8)
  /// The proxy accepts none of the offered methods (255), or chose a method that was not offered.
  case noAcceptableMethod(chosen: UInt8, offeredCredentials: Bool)
  case credentialsRefused(status: UInt8)
  case notConnected(SOCKSReply)
  /// The address type in a reply. It must be IPv4, IPv6 or a name.
  case unknownAddressType(UInt8)

  /// Whether the proxy rejected the credentials, or requires credentials.
  package var isDenial: Bool {
    switch self {
    case .refused(let refusal, sentCredentials: _): Self.isDenial(refusal)
    case .credentialsRefused: true
    case .noAcceptableMethod(let chosen, offeredCredentials: _): chosen == 255
    case .notHTTP, .tooManyInterimResponses, .notSOCKS5, .notConnected, .unknownAddressType: false
    }
  }

  package var description: String { report.description }

  package var report: ReportText {
    switch self {
    case .refused(let refusal, let sentCredentials) where Self.isDenial(refusal):
      sentCredentials ? Self.denied(refusal) : Self.credentialsRequired(refusal)
    case .refused(let refusal, sentCredentials: _):
      "the proxy responded with \(refusal.statusText); a tunnel requires 2xx"
    case .notHTTP(let error):
      "the proxy's response to CONNECT is not valid HTTP: \(quoted: error.description)"
    case .tooManyInterimResponses(let limit):
      "the proxy sent more than \(limit) interim responses to CONNECT"
    case .notSOCKS5(let byte):
      byte == UInt8(ascii: "H")
        ? "the proxy speaks HTTP, not SOCKS5: write its URL with http://"
        : "the proxy does not speak SOCKS5: its reply begins with byte \(byte)"
    case .noAcceptableMethod(255, offeredCredentials: false):
      "the proxy requires credentials: add them to its URL, as in socks5h://user:password@host:port"
    case .noAcceptableMethod(255, offeredCredentials: true):
      "the proxy accepts no supported authentication method: user name and password, or none"
    case .noAcceptableMethod(let chosen, offeredCredentials: _):
      "the proxy chose authentication method \(chosen), which was not offered"
    case .credentialsRefused(let status):
      "the proxy rejected the user name or the password (status \(status))"
    case .notConnected(let reply):
      "the proxy could not connect to the upstream: \(reply)"
    case .unknownAddressType(let type):
      "the proxy's reply has address type \(type); it must be 1 (IPv4), 3 (name) or 4 (IPv6)"
    }
  }

  /// 407 (RFC 9110 §15.5.8). tinyproxy responds with 401 to wrong credentials.
  private static func isDenial(_ refusal: HTTPRefusal) -> Bool { refusal.status == 407 || refusal.status == 401 }

  /// The registered schemes that proxies use, plus NTLM and Kerberos. Other words in the field are not shown, since a
  /// proxy could repeat a secret there.
  private static let knownSchemes = ["Basic", "Bearer", "Digest", "Kerberos", "Negotiate", "NTLM"]

  /// The schemes of the challenges in `Proxy-Authenticate`, or in `WWW-Authenticate` of a 401 (RFC 9110 §11.6.1,
  /// §11.7.1), each once.
  private static func schemes(of refusal: HTTPRefusal) -> [String] {
    let name = refusal.status == 407 ? "proxy-authenticate" : "www-authenticate"
    var schemes: [String] = []
    for field in refusal.fields where field.name.lowercased() == name {
      // Only the parts outside quoted strings are read, since commas inside quoted strings do not separate elements.
      // The first word of an element is a scheme, unless '=' follows the word.
      for (index, part) in field.value.split(separator: "\"", omittingEmptySubsequences: false).enumerated()
      where index % 2 == 0 {
        for element in part.split(separator: ",") {
          let word = element.drop { $0 == " " }.prefix { $0 != " " }.lowercased()
          guard let scheme = knownSchemes.first(where: { $0.lowercased() == word }), !schemes.contains(scheme) else {
            continue
          }
          schemes.append(scheme)
        }
      }
    }
    return schemes
  }

  /// The error for a proxy that accepts only known schemes that this module does not support; nil for any other proxy.
  private static func unsupportedSchemes(of refusal: HTTPRefusal) -> ReportText? {
    let schemes = schemes(of: refusal)
    guard !schemes.isEmpty, !schemes.contains("Basic") else { return nil }
    return "the proxy responded with \(refusal.statusText): it accepts \(schemes.joined(separator: ", ")) only, "
      + "and only the authentication scheme Basic is supported"
  }

  private static func denied(_ refusal: HTTPRefusal) -> ReportText {
    unsupportedSchemes(of: refusal)
      ?? "the proxy responded with \(refusal.statusText): it rejected the user name or the password"
  }

  private static func credentialsRequired(_ refusal: HTTPRefusal) -> ReportText {
    unsupportedSchemes(of: refusal)
      ?? "the proxy responded with \(refusal.statusText): it requires credentials; add them to its URL, as in"
      + " http://user:password@host:port (only the Basic scheme is supported)"
  }
}

/// The reply of a SOCKS5 proxy that could not connect (RFC 1928 §6).
package struct SOCKSReply: Hashable, Sendable, CustomStringConvertible {
  package let code: UInt8

  package var description: String {
    switch code {
    case 1: "general failure (1)"
    case 2: "not allowed by its rules (2)"
    case 3: "network unreachable (3)"
    case 4: "host unreachable (4)"
    case 5: "connection refused (5)"
    case 6: "time to live expired (6)"
    case 7: "command not supported (7)"
    case 8: "address type not supported (8)"
    default: "reply \(code)"
    }
  }
}
