import ByteStreams
import Signatures

/// Reads one key of a JWK Set (RFC 7517 §4, RFC 7518 §6, RFC 8037 §2).
enum JSONWebKey {
  enum Outcome {
    case key(VerificationKey)
    /// A valid key that the gateway does not use. Issuers publish keys for encryption and for other algorithms in the
    /// same set.
    case skipped(String)
  }

  /// Maximum number of members of a key. The registry has about 30.
  static let maximumMembers = 64
  private static let maximumIDBytes = 256
  /// Members that only private keys have.
  private static let privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"]

  /// - Parameters:
  ///   - text: a valid JSON value.
  ///   - number: the number of the key in the file, from 1.
  static func read(_ text: [UInt8], number: Int) throws(KeySet.Invalid) -> Outcome {
    let members: JSONMembers
    do throws(JSONMembers.Invalid) {
      members = try JSONMembers(text, maximum: maximumMembers)
    } catch {
      switch error {
      case .notAnObject: throw KeySet.Invalid("key \(number) is not a JSON object")
      case .duplicate(let name):
        throw KeySet.Invalid("key \(number): the member \(PrintableText.quoted(name)) is repeated")
      case .tooMany: throw KeySet.Invalid("key \(number) has more than \(maximumMembers) members")
      }
    }
    var reader = Reader(members: members, place: "key \(number)")
    return try reader.read()
  }

  private struct Reader {
    let members: JSONMembers
    var place: String

    mutating func read() throws(KeySet.Invalid) -> Outcome {
      let id = try string("kid")
      if let id {
        guard (1...maximumIDBytes).contains(id.count) else {
          throw fail("'kid' must have 1 to \(maximumIDBytes) bytes")
        }
        place += " (kid \(quoted(id)))"
      }
      guard let type = try string("kty") else { throw fail("'kty' is missing: use RSA, EC, OKP or oct") }
      let algorithm: SignatureAlgorithm
      switch type.span.text() {
      case "oct": algorithm = .hs256
      case "RSA": algorithm = .rs256
      case "EC": algorithm = .es256
      case "OKP": algorithm = .edDSA
      default: return skip("its 'kty' \(quoted(type)) is not RSA, EC, OKP or oct")
      }
      if algorithm != .hs256, let name = privateMembers.first(where: members.has) {
        throw fail(
          "it has '\(name)', a part of a private key: use the public key only, and replace the key if others can read this file"
        )
      }
      if let reason = try reasonToSkip(algorithm) { return skip(reason) }
      let issuer = try string("iss")
      if let issuer, !(1...JWTClaims.maximumNameBytes).contains(issuer.count) {
        throw fail("'iss' must have 1 to \(JWTClaims.maximumNameBytes) bytes")
      }
      return .key(VerificationKey(id: id, issuer: issuer, try material(algorithm)))
    }

    private func reasonToSkip(_ algorithm: SignatureAlgorithm) throws(KeySet.Invalid) -> String? {
      if let use = try string("use"), use != Array("sig".utf8) { return "its 'use' is \(quoted(use)), not \"sig\"" }
      do throws(JSONMembers.WrongType) {
        let operations = try members.strings("key_ops", maximum: maximumMembers)
        if let operations, !operations.contains(Array("verify".utf8)) {
          return "its 'key_ops' do not contain \"verify\""
        }
      } catch {
        throw fail("'key_ops' must be an array of strings")
      }
      if let name = try string("alg") {
        guard let named = SignatureAlgorithm(name: name) else {
          return "its 'alg' \(quoted(name)) is not HS256, RS256, ES256 or EdDSA"
        }
        guard named == algorithm else {
          throw fail("its 'alg' \(quoted(name)) is not for its 'kty': use \(algorithm.rawValue) or leave 'alg' out")
        }
      }
      let curve = algorithm == .es256 ? "P-256" : algorithm == .edDSA ? "Ed25519" : nil
      guard let curve else { return nil }
      guard let name = try string("crv") else { throw fail("'crv' is missing: use \(curve)") }
      return name == Array(curve.utf8) ? nil : "its 'crv' \(quoted(name)) is not \(curve)"
    }

    private func material(_ algorithm: SignatureAlgorithm) throws(KeySet.Invalid) -> VerificationKey.Material {
      switch algorithm {
      case .hs256:
        guard let key = HMACKey(try bytes("k")) else {
          throw fail("'k' must have \(HMACKey.minimumBytes) to \(HMACKey.maximumBytes) bytes")
        }
        return .secret(key)
      case .rs256:
        let (n, e) = (try bytes("n"), try bytes("e"))
        return try publicKey { () throws(PublicKey.Refused) in try PublicKey(rsaModulus: n, exponent: e) }
      case .es256:
        let (x, y) = (try bytes("x"), try bytes("y"))
        return try publicKey { () throws(PublicKey.Refused) in try PublicKey(p256X: x, y: y) }
      case .edDSA:
        let x = try bytes("x")
        return try publicKey { () throws(PublicKey.Refused) in try PublicKey(ed25519: x) }
      }
    }

    private func publicKey(
      _ make: () throws(PublicKey.Refused) -> PublicKey
    ) throws(KeySet.Invalid) -> VerificationKey.Material {
      do throws(PublicKey.Refused) {
        return .publicKey(try make())
      } catch {
        throw fail(error.description)
      }
    }

    private func string(_ name: String) throws(KeySet.Invalid) -> [UInt8]? {
      do throws(JSONMembers.WrongType) {
        return try members.string(name)
      } catch {
        throw fail("'\(name)' must be a string")
      }
    }

    private func bytes(_ name: String) throws(KeySet.Invalid) -> [UInt8] {
      guard let text = try string(name) else { throw fail("'\(name)' is missing") }
      guard let bytes = Base64.decodeURL(text.span) else { throw fail("'\(name)' must be base64url without padding") }
      return bytes
    }

    private func fail(_ reason: String) -> KeySet.Invalid { KeySet.Invalid("\(place): \(reason)") }

    private func skip(_ reason: String) -> Outcome { .skipped("\(place) is not used: \(reason)") }
  }
}
