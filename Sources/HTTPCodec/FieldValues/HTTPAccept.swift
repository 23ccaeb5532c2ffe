import ByteStreams

/// Choosing a representation by the Accept field (RFC 9110 §12.5.1).
package enum HTTPAccept {
  /// The index of the offered type that the client likes best; of equals the first. nil when it accepts none of them.
  ///
  /// - Parameters:
  ///   - offered: `type/subtype` in lower case, the server's own preference first.
  ///   - fields: those of the request. Without an Accept field, or with an empty one, everything is acceptable.
  package static func choose(_ offered: [StaticString], for fields: borrowing HTTPFields) -> Int? {
    guard !offered.isEmpty else { return nil }
    guard fields.contains(.accept) else { return 0 }
    var best: Int?
    var bestQuality = 0
    var isEmpty = true
    for index in offered.indices {
      var quality = 0
      var precedence = 0
      fields.forEachElement(of: .accept) { range in
        isEmpty = false
        guard let media = HTTPMediaType(range) else { return }
        // The most precise range that matches decides, not the best one: `*/*, text/html;q=0` refuses HTML.
        let rank = media.precedence(for: offered[index])
        guard rank > precedence else { return }
        precedence = rank
        quality = Self.quality(media)
      }
      if quality > bestQuality {
        best = index
        bestQuality = quality
      }
    }
    return isEmpty ? 0 : best
  }

  /// A `q` parameter in thousandths; 1000 without one, and 0 for one that is malformed.
  private static func quality(_ media: HTTPMediaType) -> Int {
    guard let text = media.parameter("q") else { return 1000 }
    guard text.count >= 1, text.count <= 5, text[0] == UInt8(ascii: "0") || text[0] == UInt8(ascii: "1") else {
      return 0
    }
    var value = text[0] == UInt8(ascii: "1") ? 1000 : 0
    if text.count > 1, text[1] != UInt8(ascii: ".") { return 0 }
    var weight = 100
    for index in 2..<max(2, text.count) {
      guard ASCII.isDigit(text[index]) else { return 0 }
      value += weight * Int(text[index] &- 0x30)
      weight /= 10
    }
    return value <= 1000 ? value : 0
  }
}

extension HTTPMediaType {
  /// How precisely this range names `type/subtype`: 3 exactly, 2 by `type/*`, 1 by `*/*`, 0 not at all.
  fileprivate func precedence(for offered: StaticString) -> Int {
    if type.equals("*") { return subtype.equals("*") ? 1 : 0 }
    let size = offered.utf8CodeUnitCount
    guard type.count &+ 1 < size, Self.matches(type, offered, at: 0),
      unsafe offered.utf8Start[type.count] == UInt8(ascii: "/")
    else { return 0 }
    if subtype.equals("*") { return 2 }
    guard type.count &+ 1 &+ subtype.count == size else { return 0 }
    return Self.matches(subtype, offered, at: type.count &+ 1) ? 3 : 0
  }

  private static func matches(_ bytes: Span<UInt8>, _ text: StaticString, at start: Int) -> Bool {
    guard start &+ bytes.count <= text.utf8CodeUnitCount else { return false }
    for index in bytes.indices where unsafe text.utf8Start[start &+ index] != ASCII.lowercased(bytes[index]) {
      return false
    }
    return true
  }
}
