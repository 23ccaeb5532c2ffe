import ByteStreams

/// Verifies JSON Web Tokens (RFC 7519) in their compact form, as RFC 8725 advises.
package enum JSONWebToken {
  /// Maximum length in bytes. Header fields of requests are limited as well, and a real token has one or two KiB.
  package static var maximumBytes: Int { 8_192 }

  /// Maximum number of members of a header. The header is parsed before the signature is checked, so it must be cheap.
  static let maximumHeaderMembers = 32
  static let maximumClaims = 128

  /// Parameters that no header may have. They name a key or a place from which to get it, change how the token is read,
  /// or list parameters that must be understood (RFC 8725 §3.10, RFC 7515 §4.1.11).
  static let refusedParameters = ["jku", "x5u", "jwk", "x5c", "crit", "b64", "zip"]

  /// Returns the grant of a valid token. The result depends only on the arguments.
  ///
  /// - Parameter now: UNIX time in milliseconds.
  package static func verify(
    _ token: Span<UInt8>, with keys: KeySet, _ policy: JWTPolicy, at now: Int64
  ) throws(TokenRefusal) -> Grant {
    guard token.count <= maximumBytes else { throw .length }
    let dot = UInt8(ascii: ".")
    guard let headerEnd = token.firstIndex(of: dot),
      let claimsEnd = token.firstIndex(of: dot, from: headerEnd + 1),
      token.firstIndex(of: dot, from: claimsEnd + 1) == nil
    else { throw .notThreeParts }

    let header = try members(of: token.extracting(first: headerEnd), .header, maximum: maximumHeaderMembers)
    let candidates = try candidates(for: header, in: keys)
    guard let signature = Base64.decodeURL(token.extracting(claimsEnd + 1..<token.count)) else {
      throw .notBase64URL(.signature)
    }
    for key in candidates where key.isValid(signature.span, of: token.extracting(first: claimsEnd)) {
      // No claim is read before this line.
      let claims = try members(of: token.extracting(headerEnd + 1..<claimsEnd), .claims, maximum: maximumClaims)
      return try JWTClaims(claims).grant(by: policy, at: now, key)
    }
    throw .signature
  }

  private static func members(
    of text: Span<UInt8>, _ part: TokenRefusal.Part, maximum: Int
  ) throws(TokenRefusal) -> JSONMembers {
    guard let json = Base64.decodeURL(text) else { throw .notBase64URL(part) }
    do throws(JSONMembers.Invalid) {
      return try JSONMembers(json, maximum: maximum)
    } catch {
      switch error {
      case .notAnObject: throw .notAnObject(part)
      case .duplicate: throw .duplicateMember(part)
      case .tooMany: throw .tooManyMembers(part)
      }
    }
  }

  private static func candidates(
    for header: JSONMembers, in keys: KeySet
  ) throws(TokenRefusal) -> [VerificationKey] {
    if let name = refusedParameters.first(where: header.has) { throw .parameter(name) }
    guard isAccessToken(header) else { throw .type }
    guard let name = try? header.string("alg"), let algorithm = SignatureAlgorithm(name: name) else {
      throw .algorithm
    }
    let id: [UInt8]?
    do throws(JSONMembers.WrongType) {
      id = try header.string("kid")
    } catch {
      throw .keyID
    }
    return try keys.candidates(id: id, algorithm)
  }

  /// Whether `typ` is absent or does not declare another purpose of the token (RFC 8725 §3.11, RFC 9068 §2.1).
  private static func isAccessToken(_ header: JSONMembers) -> Bool {
    guard header.has("typ") else { return true }
    guard let type = try? header.string("typ") else { return false }
    let prefix: StaticString = "application/"
    let hasPrefix = type.count > 12 && type.span.extracting(first: 12).equalsIgnoringCase(prefix)
    let name = type.span.extracting((hasPrefix ? 12 : 0)..<type.count)
    return name.equalsIgnoringCase("jwt") || name.equalsIgnoringCase("at+jwt")
  }
}
