import ByteStreams

/// Which tokens with a valid signature are accepted, by their audience and issuer.
package struct JWTPolicy: Equatable, Sendable {
  /// How far the issuer's clock may differ from the gateway's clock (RFC 7519 §4.1.4: no more than a few minutes).
  package static var defaultLeeway: TimeSpan { .seconds(60) }

  // As bytes, because Swift compares strings by canonical equivalence.
  private let audiences: [[UInt8]]
  private let issuers: [[UInt8]]
  /// In milliseconds.
  let leeway: Int64

  /// - Parameters:
  ///   - audiences: one of them must be in `aud`. If empty, no token is accepted.
  ///   - issuers: one of them must be `iss`. If empty, any issuer is accepted, or only the issuers that the keys name.
  package init(audiences: [String], issuers: [String] = [], leeway: TimeSpan = Self.defaultLeeway) {
    self.audiences = audiences.map { Array($0.utf8) }
    self.issuers = issuers.map { Array($0.utf8) }
    self.leeway = leeway.nanoseconds / 1_000_000
  }

  /// 0 if any issuer is accepted.
  var issuerCount: Int { issuers.count }

  func accepts(audience: [UInt8]) -> Bool { audiences.contains(audience) }

  func accepts(issuer: [UInt8]) -> Bool { issuers.isEmpty || issuers.contains(issuer) }
}
