import Access
import ByteStreams

/// Files of keys: an accepted file has no private key and no repeated name, and error messages are safe to print.
enum KeySetTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    let keys: KeySet
    do throws(KeySet.Invalid) {
      keys = try KeySet(bytes)
    } catch {
      try requirePrintable(error.description)
      return
    }
    for warning in keys.warnings { try requirePrintable(warning) }
    guard !bytes.contains(Array("-----BEGIN PUBLIC KEY-----".utf8)) else { return }

    guard let tree = ReferenceJSONTree(bytes), let names = tree.uniqueNames, names.contains(Array("keys".utf8)),
      case .array(let elements)? = tree.values("keys").first
    else { throw Finding("accepted, although it is no object with an array 'keys'") }
    try require((1...64).contains(elements.count), "\(elements.count) keys are accepted")
    var used = 0
    for element in elements {
      try require(element.uniqueNames != nil, "a key with a repeated member is accepted")
      let type = element.values("kty").first?.string.map { String(decoding: $0, as: UTF8.self) }
      switch type {
      case nil: throw Finding("a key without 'kty' is accepted")
      case "RSA"?, "EC"?, "OKP"?:
        for name in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
          try require(element.values(name).isEmpty, "a key with the private member '\(name)' is accepted")
        }
      default: break
      }
      if isUsable(element, type: type ?? "") { used += 1 }
    }
    try require(used + keys.warnings.count == elements.count, "\(used) usable keys, \(keys.warnings.count) warnings")
  }

  /// Whether the key can verify tokens. Its numbers are not examined.
  private static func isUsable(_ key: ReferenceJSONTree, type: String) -> Bool {
    let algorithms = ["oct": ["HS256"], "RSA": ["RS256"], "EC": ["ES256"], "OKP": ["EdDSA", "Ed25519"]]
    let curves = ["EC": "P-256", "OKP": "Ed25519"]
    guard let allowed = algorithms[type] else { return false }
    if let name = key.values("alg").first?.string, !allowed.contains(String(decoding: name, as: UTF8.self)) {
      return false
    }
    if let use = key.values("use").first?.string, use != Array("sig".utf8) { return false }
    if let operations = key.values("key_ops").first?.strings, !operations.contains(Array("verify".utf8)) {
      return false
    }
    guard let curve = curves[type] else { return true }
    return key.values("crv").first?.string == Array(curve.utf8)
  }
}

/// Messages for a terminal have no control characters.
func requirePrintable(_ text: String) throws(Finding) {
  let isPrintable = text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) }
  try require(isPrintable, "a control character is printed: \(String(reflecting: text))")
}
