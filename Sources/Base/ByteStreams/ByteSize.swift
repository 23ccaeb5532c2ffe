/// The text form of sizes in bytes.
package enum ByteSize {
  /// Parses `64KiB`, `16MiB`, `1GiB`, or plain bytes.
  package static func parse(_ text: String) -> Int? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard let count = Int(digits), count <= 1 << 40 else { return nil }
    switch text.dropFirst(digits.count) {
    case "", "B": return count
    case "KiB": return count << 10
    case "MiB": return count << 20
    case "GiB": return count <= 1 << 20 ? count << 30 : nil
    default: return nil
    }
  }

  package static func format(_ bytes: Int) -> String {
    for (name, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] where bytes > 0 && bytes & ((1 << shift) - 1) == 0 {
      return "\(bytes >> shift)\(name)"
    }
    return String(bytes)
  }
}
