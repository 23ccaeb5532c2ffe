/// Why a bearer token is refused.
package enum TokenRefusal: Error, Hashable, Sendable, CustomStringConvertible {
  package enum Part: String, Sendable { case header, claims, signature }
  package enum Claim: String, Sendable { case exp, nbf, iat, aud, iss, sub, scope, drawbridge }

  /// Shorter or longer than any token.
  case length
  /// A character outside of token68 (RFC 9110 §11.2).
  case character
  /// Not a static token, and JWT are not configured.
  case unknown

  // The form of a JWT (RFC 7515 §5.2).
  case notThreeParts
  case notBase64URL(Part)
  case notAnObject(Part)
  case duplicateMember(Part)
  case tooManyMembers(Part)

  // The header of the JWT.
  /// A parameter that names a key or a place from which to get it, or changes the meaning of the token.
  case parameter(String)
  case type
  case algorithm
  case keyID
  case unknownKey
  case ambiguousKey
  case otherAlgorithm
  case signature

  // The claims of the JWT, whose signature is valid.
  case missing(Claim)
  case malformed(Claim)
  case expired
  case notYetValid
  case otherAudience
  case otherIssuer
  case issuerOfOtherKey

  /// The reason for the log.
  package var description: String {
    switch self {
    case .length: "the token has fewer than 16 or more than 8,192 bytes"
    case .character: "the token has a character that tokens cannot contain"
    case .unknown: "the token is unknown"
    case .notThreeParts: "the token is neither a static token nor a JWT of three parts"
    case .notBase64URL(let part): "the \(part.rawValue) part of the JWT is not canonical base64url"
    case .notAnObject(let part): "the \(part.rawValue) part of the JWT is not a JSON object"
    case .duplicateMember(let part): "the \(part.rawValue) part of the JWT has two members of one name"
    case .tooManyMembers(let part): "the \(part.rawValue) part of the JWT has too many members"
    case .parameter(let name): "the header of the JWT has '\(name)', which is not accepted"
    case .type: "'typ' of the JWT is neither JWT nor at+jwt"
    case .algorithm: "'alg' of the JWT is not HS256, RS256, ES256 or EdDSA"
    case .keyID: "'kid' of the JWT is not a string"
    case .unknownKey: "no configured key has the 'kid' and 'alg' of the JWT"
    case .ambiguousKey:
      "the JWT has no 'kid', and more than \(KeySet.maximumCandidates) configured keys have its 'alg'"
    case .otherAlgorithm: "'alg' of the JWT is not the algorithm of the configured key with its 'kid'"
    case .signature: "the signature of the JWT is not valid"
    case .missing(let claim): "the claim '\(claim.rawValue)' is missing"
    case .malformed(let claim): "the claim '\(claim.rawValue)' is not valid: \(Self.expectation(of: claim))"
    case .expired: "the token has expired"
    case .notYetValid: "the token is not valid yet"
    case .otherAudience: "the token is for another audience"
    case .otherIssuer: "the issuer of the token is not accepted"
    case .issuerOfOtherKey: "the key that signed the token does not belong to its issuer"
    }
  }

  /// The reason for the client. If the signature is valid, it is the complete reason. Otherwise it contains nothing
  /// that would help to forge a token.
  package var clientDescription: String {
    switch self {
    case .missing, .malformed, .expired, .notYetValid, .otherAudience, .otherIssuer, .issuerOfOtherKey: description
    default: "the token is not valid"
    }
  }

  private static func expectation(of claim: Claim) -> String {
    switch claim {
    case .exp, .nbf, .iat: "it must be the number of seconds since 1970, without exponent"
    case .aud: "it must be a string or an array of at most \(JWTClaims.maximumAudiences) strings"
    case .iss, .sub: "it must be a string of 1 to \(JWTClaims.maximumNameBytes) bytes"
    case .scope: "it must be a string of words separated by spaces"
    case .drawbridge:
      "it must be an object with no other members than 'sessions' and 'topics', arrays of at most \(NamePatterns.maximumCount) names with \(NamePatterns.maximumBytes) bytes in total"
    }
  }
}
