import Signatures

/// Checks a JWT that is signed with one secret and whose `kid` is `a`. It is a second, slow implementation of the rules
/// in docs/access.md.
struct ReferenceJWT {
  let issuer: [UInt8]
  let subject: [UInt8]
  /// In milliseconds.
  let expires: Int64

  /// Returns nil if the token must be refused at `now`, in milliseconds.
  init?(_ token: [UInt8], key: HMACKey, audience: String, now: Int64) {
    let parts = token.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).map(Array.init)
    guard token.count <= 8_192, parts.count == 3, let header = Self.object(parts[0], maximum: 32),
      Self.isAccepted(header), let signature = Self.decoded(parts[2]),
      key.signature(of: (parts[0] + [UInt8(ascii: ".")] + parts[1]).span) == signature,
      let claims = Self.object(parts[1], maximum: 128)
    else { return nil }
    let leeway: Int64 = 60_000
    guard let expires = claims.values("exp").first.flatMap(Self.time), now < expires + leeway,
      let issuer = claims.values("iss").first?.string, let subject = claims.values("sub").first?.string,
      (1...256).contains(issuer.count), (1...256).contains(subject.count), let audiences = claims.values("aud").first
    else { return nil }
    for name in ["nbf", "iat"] {
      guard let value = claims.values(name).first else { continue }
      guard let start = Self.time(value), start <= now + leeway else { return nil }
    }
    guard let list = audiences.string.map({ [$0] }) ?? audiences.strings, list.count <= 64,
      list.contains(Array(audience.utf8))
    else { return nil }
    if let scope = claims.values("scope").first, scope.string == nil { return nil }
    if let limits = claims.values("drawbridge").first {
      guard let names = limits.uniqueNames else { return nil }
      for name in names {
        guard [Array("sessions".utf8), Array("topics".utf8)].contains(name),
          let patterns = limits.values(String(decoding: name, as: UTF8.self))[0].strings, patterns.count <= 64
        else { return nil }
        let lengths = patterns.map { $0.last == UInt8(ascii: "*") ? $0.count - 1 : $0.count }
        guard !patterns.contains([]), lengths.reduce(0, +) <= 1_024 else { return nil }
      }
    }
    (self.issuer, self.subject, self.expires) = (issuer, subject, expires + leeway)
  }

  private static func isAccepted(_ header: ReferenceJSONTree) -> Bool {
    for name in ["jku", "x5u", "jwk", "x5c", "crit", "b64", "zip"] where !header.values(name).isEmpty { return false }
    if let type = header.values("typ").first {
      let names = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"].map { Array($0.utf8) }
      let lowercased = type.string?.map { (0x41...0x5A).contains($0) ? $0 + 0x20 : $0 }
      guard let lowercased, names.contains(lowercased) else { return false }
    }
    if let id = header.values("kid").first, id.string != [UInt8(ascii: "a")] { return false }
    return header.values("alg").first?.string == Array("HS256".utf8)
  }

  private static func object(_ text: [UInt8], maximum: Int) -> ReferenceJSONTree? {
    guard let bytes = decoded(text), let tree = ReferenceJSONTree(bytes), let names = tree.uniqueNames,
      names.count <= maximum
    else { return nil }
    return tree
  }

  /// Digits with an optional fraction, in milliseconds.
  private static func time(_ value: ReferenceJSONTree) -> Int64? {
    guard case .word(let word) = value else { return nil }
    let parts = String(decoding: word, as: UTF8.self).split(separator: ".", omittingEmptySubsequences: false)
    let hasOnlyDigits = parts.allSatisfy { $0.allSatisfy { ("0"..."9").contains($0) } }
    guard hasOnlyDigits, let seconds = Int64(parts[0]), seconds <= 253_402_300_799 else { return nil }
    let fraction = parts.count > 1 ? (parts[1] + "000").prefix(3) : "0"
    return Int64(fraction).map { seconds * 1_000 + $0 }
  }

  private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
  private static let values = (0...255).map { alphabet.firstIndex(of: UInt8($0)) }

  static func encoded(_ bytes: [UInt8]) -> [UInt8] {
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: 3) {
      let group = bytes[start..<min(start + 3, bytes.count)]
      // 24 bits; the missing bytes are zero.
      let bits = group.reduce(0) { $0 << 8 | Int($1) } << (8 * (3 - group.count))
      for digit in 0...group.count { text.append(alphabet[bits >> (18 - 6 * digit) & 63]) }
    }
    return text
  }

  /// The bytes whose only encoding is `text`, or nil.
  private static func decoded(_ text: [UInt8]) -> [UInt8]? {
    var bytes: [UInt8] = []
    for start in stride(from: 0, to: text.count, by: 4) {
      let group = text[start..<min(start + 4, text.count)]
      var bits = 0
      for digit in group {
        guard let value = values[Int(digit)] else { return nil }
        bits = bits << 6 | value
      }
      bits <<= 6 * (4 - group.count)
      for index in 0..<group.count - 1 { bytes.append(UInt8(bits >> (16 - 8 * index) & 255)) }
    }
    return encoded(bytes) == text ? bytes : nil
  }
}
