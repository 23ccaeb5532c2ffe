import ByteStreams

/// The claims of a token with a valid signature (RFC 7519 §4).
struct JWTClaims {
  /// Maximum length in bytes of `iss` and `sub`, which become the name of the principal.
  static let maximumNameBytes = 256
  static let maximumAudiences = 64

  private let claims: JSONMembers

  init(_ claims: JSONMembers) { self.claims = claims }

  /// - Parameters:
  ///   - now: UNIX time in milliseconds.
  ///   - key: the key that signed the token.
  func grant(by policy: JWTPolicy, at now: Int64, _ key: VerificationKey) throws(TokenRefusal) -> Grant {
    guard let expires = try time(.exp) else { throw .missing(.exp) }
    guard now < expires + policy.leeway else { throw .expired }
    // The token is from the future: the issuer's clock or the gateway's clock is wrong.
    for claim in [TokenRefusal.Claim.nbf, .iat] {
      if let start = try time(claim), now + policy.leeway < start { throw .notYetValid }
    }
    guard try audiences().contains(where: policy.accepts(audience:)) else { throw .otherAudience }
    let issuer = try name(.iss)
    guard policy.accepts(issuer: issuer) else { throw .otherIssuer }
    if let owner = key.issuer, owner != issuer { throw .issuerOfOtherKey }
    let subject = try name(.sub)
    let scopes = try string(.scope).map { Scopes(listedIn: $0.span) } ?? []
    let (sessions, topics) = try patterns()
    return Grant(
      principal: Self.principal(issuer, subject), scopes: scopes, sessions: sessions, topics: topics,
      expires: expires + policy.leeway, revocation: key.revocation)
  }

  /// Issuer and subject, separated by a space. Bytes other than printable ASCII, and `%`, are percent-encoded, so the
  /// text is unambiguous and safe in a log.
  private static func principal(_ issuer: [UInt8], _ subject: [UInt8]) -> String {
    var output = ByteQueue()
    for (index, name) in [issuer, subject].enumerated() {
      if index > 0 { output.append(0x20) }
      for byte in name {
        if (0x21...0x7E).contains(byte), byte != UInt8(ascii: "%") {
          output.append(byte)
        } else {
          output.append(UInt8(ascii: "%"))
          for digit in [byte >> 4, byte & 15] { output.append(digit < 10 ? digit + 0x30 : digit + 0x37) }
        }
      }
    }
    return output.bytes.text()
  }

  /// The claim `drawbridge`: the sessions and topics that the client may use. Without the claim, or without one of its
  /// members, all are allowed. An unknown member is an error: a misspelt restriction would restrict nothing.
  private func patterns() throws(TokenRefusal) -> (sessions: NamePatterns, topics: NamePatterns) {
    let members: JSONMembers?
    do throws(JSONMembers.Invalid) {
      members = try claims.object(TokenRefusal.Claim.drawbridge.rawValue, maximum: 2)
    } catch {
      throw .malformed(.drawbridge)
    }
    guard let members else { return (.all, .all) }
    guard members.count == (members.has("sessions") ? 1 : 0) + (members.has("topics") ? 1 : 0) else {
      throw .malformed(.drawbridge)
    }
    return (try patterns("sessions", members), try patterns("topics", members))
  }

  private func patterns(_ name: String, _ members: JSONMembers) throws(TokenRefusal) -> NamePatterns {
    guard members.has(name) else { return .all }
    guard let names = try? members.strings(name, maximum: NamePatterns.maximumCount),
      let patterns = try? NamePatterns(names)
    else { throw .malformed(.drawbridge) }
    return patterns
  }

  private func audiences() throws(TokenRefusal) -> [[UInt8]] {
    guard claims.has("aud") else { throw .missing(.aud) }
    if let audience = try? claims.string("aud") { return [audience] }
    guard let list = try? claims.strings("aud", maximum: Self.maximumAudiences) else { throw .malformed(.aud) }
    return list
  }

  private func name(_ claim: TokenRefusal.Claim) throws(TokenRefusal) -> [UInt8] {
    guard let name = try string(claim) else { throw .missing(claim) }
    guard (1...Self.maximumNameBytes).contains(name.count) else { throw .malformed(claim) }
    return name
  }

  private func string(_ claim: TokenRefusal.Claim) throws(TokenRefusal) -> [UInt8]? {
    do throws(JSONMembers.WrongType) {
      return try claims.string(claim.rawValue)
    } catch {
      throw .malformed(claim)
    }
  }

  private func time(_ claim: TokenRefusal.Claim) throws(TokenRefusal) -> Int64? {
    do throws(JSONMembers.WrongType) {
      return try claims.time(claim.rawValue)
    } catch {
      throw .malformed(claim)
    }
  }
}
