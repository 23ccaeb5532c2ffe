import Access
import ByteStreams

/// The value of `WWW-Authenticate` (RFC 6750 §3).
enum Challenge {
  /// The request has no credentials.
  case missing
  /// The description is a text of this program, and repeats nothing of the token.
  case invalidToken(String)
  case insufficientScope(Scopes)
  /// Only other gateways may send the request. The challenge distinguishes this response from a 403 that is meant for a
  /// client of the other gateway.
  case gateway

  func write(into fields: inout ByteQueue) {
    if case .gateway = self { return fields.append("WWW-Authenticate: Drawbridge\r\n" as StaticString) }
    fields.append("WWW-Authenticate: Bearer realm=\"drawbridge\"" as StaticString)
    switch self {
    case .missing, .gateway: break
    case .invalidToken(let description):
      fields.append(", error=\"invalid_token\", error_description=\"" as StaticString)
      // RFC 6750 excludes these two characters.
      fields.append(description.filter { $0 != "\"" && $0 != "\\" })
      fields.append("\"" as StaticString)
    case .insufficientScope(let scopes):
      fields.append(", error=\"insufficient_scope\", scope=\"" as StaticString)
      fields.append(scopes.text)
      fields.append("\"" as StaticString)
    }
    fields.append("\r\n" as StaticString)
  }
}

extension Scopes {
  /// The names of the scopes, separated by spaces, as in a token.
  var text: String {
    [(Scopes.send, "send"), (.receive, "receive"), (.call, "call"), (.admin, "admin")]
      .filter { contains($0.0) }.map(\.1).joined(separator: " ")
  }
}
