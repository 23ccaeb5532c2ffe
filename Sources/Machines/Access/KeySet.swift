import ByteStreams
import Signatures

/// The keys that verify JWT: a JWK Set (RFC 7517), or public keys in PEM.
package struct KeySet: Sendable {
  /// A file that cannot be used. The whole file is refused: if only the faulty key were left out, clients would be
  /// refused later.
  package struct Invalid: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String
    init(_ description: String) { self.description = description }
  }

  /// Maximum size of the file in bytes: 64 keys of the largest kind are smaller.
  package static var maximumBytes: Int { 256 << 10 }
  /// Maximum number of keys. An issuer that rotates its keys has a few.
  package static var maximumKeys: Int { 64 }
  /// Maximum number of keys that are tried for one token, since each key costs the verification of a signature. This
  /// number is enough for a rotation.
  package static var maximumCandidates: Int { 4 }

  private(set) var keys: [VerificationKey] = []
  /// Keys of the file that are not used, and why.
  package private(set) var warnings: [String] = []

  package init(_ contents: [UInt8]) throws(Invalid) {
    guard contents.count <= Self.maximumBytes else {
      throw Invalid("the file has more than \(Self.maximumBytes) bytes")
    }
    let isPEM = contents.span.trimmingWhitespace().starts(with: "-----BEGIN ") || contents.firstPEMLine != nil
    if isPEM { try addPEM(contents) } else { try addJWKs(contents) }
    guard !keys.isEmpty else {
      throw Invalid("there is no key that verifies tokens: add one of type RSA, EC (P-256), OKP (Ed25519) or oct")
    }
  }

  /// Returns these keys, with the objects of `previous` for the keys that are in both sets, so that the grants of these
  /// keys stay valid.
  func sharing(with previous: KeySet) -> KeySet {
    var result = self
    result.keys = keys.map { key in previous.keys.first { $0.isSame(as: key) } ?? key }
    return result
  }

  /// Returns the keys that may have signed a token (RFC 7515 §4.1.4). Only configured keys are candidates.
  func candidates(id: [UInt8]?, _ algorithm: SignatureAlgorithm) throws(TokenRefusal) -> [VerificationKey] {
    if let id, let named = keys.first(where: { $0.id == id }) {
      guard named.algorithm == algorithm else { throw .otherAlgorithm }
      return [named]
    }
    let candidates = keys.filter { $0.algorithm == algorithm && (id == nil || $0.id == nil) }
    guard !candidates.isEmpty else { throw .unknownKey }
    guard candidates.count <= Self.maximumCandidates else { throw .ambiguousKey }
    return candidates
  }

  /// Requires that each key belongs to one issuer (RFC 8725 §3.8). Without this rule, one issuer could sign tokens in
  /// the name of another issuer.
  func checkIssuers(_ policy: JWTPolicy) throws(Invalid) {
    for key in keys {
      guard let issuer = key.issuer else { continue }
      guard policy.accepts(issuer: issuer) else {
        throw Invalid("the 'iss' \(quoted(issuer)) of a key is not among the accepted issuers")
      }
    }
    // With one accepted issuer, every key belongs to that issuer.
    let needsIssuers = policy.issuerCount > 1 || (policy.issuerCount == 0 && keys.contains { $0.issuer != nil })
    guard needsIssuers, let index = keys.firstIndex(where: { $0.issuer == nil }) else { return }
    let key = keys[index].id.map { "the key with the kid \(quoted($0))" } ?? "a key without kid"
    throw Invalid(
      "\(key) does not name its issuer: with several issuers, use a JWK Set in which each key has the member 'iss'")
  }

  private mutating func add(_ key: VerificationKey) throws(Invalid) {
    if let id = key.id {
      guard !keys.contains(where: { $0.id == id }) else {
        throw Invalid("two keys have the kid \(quoted(id)): a kid must be unique")
      }
    } else {
      let others = keys.count { $0.id == nil && $0.algorithm == key.algorithm }
      guard others < Self.maximumCandidates else {
        throw Invalid(
          "more than \(Self.maximumCandidates) keys for \(key.algorithm.rawValue) have no kid: use a JWK Set with kid")
      }
    }
    keys.append(key)
  }

  private mutating func addJWKs(_ contents: [UInt8]) throws(Invalid) {
    let document: JSONMembers
    do throws(JSONMembers.Invalid) {
      document = try JSONMembers(contents, maximum: JSONWebKey.maximumMembers)
    } catch {
      switch error {
      case .duplicate(let name): throw Invalid("the member \(PrintableText.quoted(name)) is repeated")
      default:
        throw Invalid("the file is neither a JWK Set (a JSON object with an array 'keys') nor public keys in PEM")
      }
    }
    // An array with too many keys gets its own error below.
    guard let elements = try? document.elements("keys", maximum: Self.maximumBytes) else {
      throw Invalid("the file has no array 'keys': use a JWK Set (RFC 7517 §5)")
    }
    guard elements.count <= Self.maximumKeys else { throw Invalid("there are more than \(Self.maximumKeys) keys") }
    for (index, element) in elements.enumerated() {
      switch try JSONWebKey.read(element, number: index + 1) {
      case .key(let key): try add(key)
      case .skipped(let reason): warnings.append(reason)
      }
    }
  }

  private mutating func addPEM(_ contents: [UInt8]) throws(Invalid) {
    var block: [UInt8] = []
    var number = 0
    var isOpen = false
    for line in contents.split(separator: UInt8(ascii: "\n")) {
      let line = line.last == UInt8(ascii: "\r") ? line.dropLast() : line
      if line.starts(with: "-----BEGIN ".utf8) {
        guard !isOpen else { throw Invalid("PEM block \(number) has no end") }
        number += 1
        block = []
        isOpen = true
        guard line.elementsEqual("-----BEGIN PUBLIC KEY-----".utf8) else {
          throw Invalid(
            "PEM block \(number) is not a public key: use BEGIN PUBLIC KEY, which `openssl pkey -pubout` writes")
        }
        guard number <= Self.maximumKeys else { throw Invalid("there are more than \(Self.maximumKeys) keys") }
      }
      block += line + [UInt8(ascii: "\n")]
      guard line.starts(with: "-----END ".utf8) else { continue }
      isOpen = false
      let key: PublicKey
      do throws(PublicKey.Refused) {
        key = try PublicKey(pem: block)
      } catch {
        throw Invalid("PEM block \(number): \(error)")
      }
      try add(VerificationKey(id: nil, .publicKey(key)))
    }
    guard !isOpen else { throw Invalid("PEM block \(number) has no end") }
  }
}

/// Formats a name from the file, for an error or a warning.
func quoted(_ name: [UInt8]) -> String { PrintableText.quoted(name.span.excerpt()) }

extension [UInt8] {
  /// The index of the first line of a PEM block that follows other text.
  fileprivate var firstPEMLine: Int? {
    let mark = Array("\n-----BEGIN ".utf8)
    return indices.first { self[$0] == mark[0] && self[$0...].starts(with: mark) }
  }
}
