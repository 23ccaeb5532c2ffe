import Access
import ByteStreams
import Signatures

/// JSON Web Tokens, compared with a simple implementation of the rules. The first byte selects the meaning of the rest:
/// a token, or the header or the claims of a token that this target signs. An input thus also reaches the code after
/// the signature.
enum JSONWebTokenTarget {
  /// 2027-01-15T08:00:00Z.
  private static let now: Int64 = 1_800_000_000_000
  private static let audience = "a"
  private static let secret = [UInt8](repeating: UInt8(ascii: "k"), count: 32)
  private static let header = Array(#"{"alg":"HS256"}"#.utf8)
  private static let claims = Array(#"{"iss":"i","sub":"s","aud":"a","exp":1800000001}"#.utf8)

  private struct Parts: Sendable {
    let key: HMACKey
    let credentials: Credentials
  }

  private static let parts: Parts? = {
    let encoded = String(decoding: ReferenceJWT.encoded(secret), as: UTF8.self)
    guard let key = HMACKey(secret),
      let keys = try? KeySet(Array(#"{"keys":[{"kty":"oct","kid":"a","k":"\#(encoded)"}]}"#.utf8))
    else { return nil }
    guard let jwt = try? Credentials.JWT(keys: keys, policy: JWTPolicy(audiences: [audience])) else { return nil }
    return Parts(key: key, credentials: Credentials(tokens: nil, jwt: jwt))
  }()

  static func run(_ input: Span<UInt8>) throws(Finding) {
    guard let parts else { throw Finding("the key of the target is refused") }
    guard !input.isEmpty else { return }
    let rest = [UInt8](copying: input.extracting(1..<input.count))
    switch input[0] % 3 {
    case 0: try check(rest, parts)
    case 1: try check(signed(header: rest, claims, parts.key), parts)
    default: try check(signed(header: header, rest, parts.key), parts)
    }
  }

  private static func signed(header: [UInt8], _ claims: [UInt8], _ key: HMACKey) -> [UInt8] {
    let text = ReferenceJWT.encoded(header) + [UInt8(ascii: ".")] + ReferenceJWT.encoded(claims)
    return text + [UInt8(ascii: ".")] + ReferenceJWT.encoded(key.signature(of: text.span))
  }

  private static func check(_ token: [UInt8], _ parts: Parts) throws(Finding) {
    var verifier = TokenVerifier(parts.credentials, cachedTokens: 64)
    let expected = ReferenceJWT(token, key: parts.key, audience: audience, now: now)
    let grant: Grant
    do throws(TokenRefusal) {
      grant = try verifier.verify(token.span, at: now)
    } catch {
      try require(expected == nil, "refused, although it is valid: \(error)")
      return
    }
    guard let expected else { throw Finding("accepted, although it must be refused") }
    try require(grant.expires == expected.expires, "the expiry is \(grant.expires ?? 0) instead of \(expected.expires)")
    try require(grant.principal.utf8.allSatisfy { (0x20...0x7E).contains($0) }, "the principal is not printable")
    let names = grant.principal.split(separator: " ").map { PercentDecoderOfPrincipal.decode($0) }
    try require(names == [expected.issuer, expected.subject], "the principal is \(grant.principal)")
    try requireCached(grant, token, expected, &verifier)
  }

  private static func requireCached(
    _ grant: Grant, _ token: [UInt8], _ expected: ReferenceJWT, _ verifier: inout TokenVerifier
  ) throws(Finding) {
    let last = try? verifier.verify(token.span, at: expected.expires - 1)
    try require(last === grant, "the second verification has another result")
    let isAccepted = (try? verifier.verify(token.span, at: expected.expires)) != nil
    try require(!isAccepted, "accepted after its expiry")
  }
}

private enum PercentDecoderOfPrincipal {
  static func decode(_ text: Substring) -> [UInt8] {
    var output: [UInt8] = []
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
      guard byte == UInt8(ascii: "%") else {
        output.append(byte)
        continue
      }
      output.append(UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) ?? 0)
      rest = rest.dropFirst(2)
    }
    return output
  }
}
