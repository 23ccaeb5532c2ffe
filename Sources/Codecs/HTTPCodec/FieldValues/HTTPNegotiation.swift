import ByteStreams

/// Content negotiation by `Accept` and `Accept-Encoding` (RFC 9110 §12.5). Qualities are in thousandths. 0 means 'not
/// acceptable'.
extension HTTPFields {
  /// Whether all media types are equally acceptable, because there is no Accept field, or its value is empty or `*/*`.
  /// These usual cases are found by a comparison of bytes.
  package var acceptsAllMediaTypes: Bool {
    guard let value = first(.accept) else { return true }
    return (value.isEmpty || value.equals("*/*")) && !isRepeated(.accept)
  }

  /// The quality of `type/subtype`, by the most specific media range that matches. Parameters other than `q` are
  /// ignored, since the gateway's representations do not differ in them. Both names must be in lower case.
  ///
  /// - Parameter byName: whether only ranges without a wildcard are considered. If no such range matches, the quality
  ///   is 0.
  package func quality(of type: StaticString, _ subtype: StaticString, byName: Bool = false) -> Int {
    if acceptsAllMediaTypes { return byName ? 0 : 1000 }
    var best = (specificity: -1, quality: 0)
    forEachElement(of: .accept) { element in
      guard let (specificity, quality) = Self.match(element, type, subtype) else { return }
      if specificity > best.specificity || specificity == best.specificity && quality > best.quality {
        best = (specificity, quality)
      }
    }
    return byName && best.specificity < 2 ? 0 : best.quality
  }

  /// Returns the specificity and the quality of the media range `element`, or nil if the range does not match.
  private static func match(
    _ element: Span<UInt8>, _ type: StaticString, _ subtype: StaticString
  ) -> (specificity: Int, quality: Int)? {
    let (range, quality) = element.splitQuality()
    // `*` is not a media range, but Java's HttpURLConnection sends it and means any type.
    if range.equals("*") || range.equals("*/*") { return (0, quality) }
    guard let media = HTTPMediaType(range), media.type.equalsIgnoringCase(type) else { return nil }
    if media.subtype.equals("*") { return (1, quality) }
    return media.subtype.equalsIgnoringCase(subtype) ? (2, quality) : nil
  }
}

/// The content codings that a client accepts (RFC 9110 §12.5.3).
package enum HTTPAcceptedCodings: UInt8, Sendable {
  /// No coding, since gzip is not acceptable or has a lower quality. This is also the value if there is no
  /// Accept-Encoding field.
  case identity
  /// gzip is preferred. Identity is acceptable, too.
  case gzip
  /// Only gzip is acceptable.
  case gzipOnly
  /// Neither gzip nor identity is acceptable.
  case none

  package init(_ fields: borrowing HTTPFields) {
    guard fields.contains(.acceptEncoding) else {
      self = .identity
      return
    }
    var gzip: Int?
    var identity: Int?
    var others: Int?
    fields.forEachElement(of: .acceptEncoding) { element in
      let (coding, quality) = element.splitQuality()
      if coding.equalsIgnoringCase("gzip") || coding.equalsIgnoringCase("x-gzip") {
        gzip = max(gzip ?? 0, quality)
      } else if coding.equalsIgnoringCase("identity") {
        identity = quality
      } else if coding.equals("*") {
        others = quality
      }
    }
    let gzipQuality = gzip ?? others ?? 0
    // Identity is acceptable unless the client excludes it. If gzip is acceptable, too, it is preferred unless the
    // client names identity with a higher quality.
    let identityIsAccepted = (identity ?? others ?? 1) > 0
    if gzipQuality == 0 {
      self = identityIsAccepted ? .identity : .none
    } else if !identityIsAccepted {
      self = .gzipOnly
    } else {
      self = gzipQuality >= identity ?? 0 ? .gzip : .identity
    }
  }
}

extension Span where Element == UInt8 {
  /// Splits an element of a negotiation field at its parameters, and reads its weight (RFC 9110 §12.4.2). Without a
  /// valid weight, the quality is 1000. `.2` is accepted for `0.2`, since Java sends it.
  @_lifetime(copy self)
  fileprivate func splitQuality() -> (value: Span<UInt8>, quality: Int) {
    let semicolon = firstIndex(of: UInt8(ascii: ";")) ?? count
    let value = extracting(first: semicolon).trimmingWhitespace()
    guard semicolon < count else { return (value, 1000) }
    var parameters = HTTPListElements(
      extracting((semicolon &+ 1)..<count), separatedBy: UInt8(ascii: ";"), quoting: .strings)
    var quality = 1000
    while let parameter = parameters.next() {
      guard parameter.count > 2, ASCII.lowercased(parameter[0]) == UInt8(ascii: "q"),
        parameter[1] == UInt8(ascii: "=")
      else { continue }
      quality = parameter.extracting(2..<parameter.count).thousandths() ?? 1000
    }
    return (value, quality)
  }

  /// The value of `0.125`, `1` or `.2` in thousandths, at most 1000. Further digits are ignored. Returns nil for other
  /// texts.
  private func thousandths() -> Int? {
    let dot = firstIndex(of: UInt8(ascii: ".")) ?? count
    guard dot < 2, let whole = dot == 0 ? 0 : extracting(first: dot).decimalValue() else { return nil }
    var value = whole
    var digits = 0
    var index = dot &+ 1
    while index < count {
      guard ASCII.isDigit(self[index]) else { return nil }
      if digits < 3 {
        value = value * 10 + Int(self[index] &- 0x30)
        digits += 1
      }
      index &+= 1
    }
    while digits < 3 {
      value *= 10
      digits += 1
    }
    return Swift.min(value, 1000)
  }
}
