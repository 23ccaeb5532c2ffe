import ByteStreams

extension HTTPRequestHead {
  /// Takes the target apart (RFC 9112 §3.2) and refuses what has no place in it.
  mutating func readTarget(_ line: Span<UInt8>) throws(HTTPProtocolError) {
    let start = targetRange.lowerBound
    let end = targetRange.upperBound
    authorityRange = 0..<0
    switch line[start] {
    case UInt8(ascii: "/"):
      targetForm = .origin
      try splitPath(line, from: start, to: end)
    case UInt8(ascii: "*") where end == start &+ 1:
      guard method == .options else { throw .targetFormNotAllowed }
      targetForm = .asterisk
      pathRange = end..<end
      queryRange = end..<end
    default:
      if method == .connect { throw .methodNotSupported }
      try readAbsolute(line, from: start, to: end)
    }
  }

  /// `http://authority[/path][?query]`.
  private mutating func readAbsolute(_ line: Span<UInt8>, from start: Int, to end: Int) throws(HTTPProtocolError) {
    let target = line.extracting(start..<end)
    let scheme: Int
    if target.count > 7, target.extracting(first: 7).equalsIgnoringCase("http://") {
      scheme = 7
    } else if target.count > 8, target.extracting(first: 8).equalsIgnoringCase("https://") {
      scheme = 8
    } else {
      throw .targetFormNotAllowed
    }
    var index = start &+ scheme
    while index < end, line[index] != UInt8(ascii: "/"), line[index] != UInt8(ascii: "?") { index &+= 1 }
    authorityRange = (start &+ scheme)..<index
    let authority = line.extracting(authorityRange)
    guard !authority.isEmpty, authority.isHostAndPort() else { throw .malformedTarget }
    targetForm = .absolute
    try splitPath(line, from: index, to: end)
  }

  private mutating func splitPath(_ line: Span<UInt8>, from start: Int, to end: Int) throws(HTTPProtocolError) {
    var index = start
    var question = end
    while index < end {
      let byte = line[index]
      if !URICharacter.isPathOrQuery(byte) {
        guard byte == UInt8(ascii: "%"), index &+ 2 < end, ASCII.isHexDigit(line[index &+ 1]),
          ASCII.isHexDigit(line[index &+ 2])
        else { throw .malformedTarget }
      } else if byte == UInt8(ascii: "?"), question == end {
        question = index
      }
      index &+= 1
    }
    pathRange = start..<question
    queryRange = min(question &+ 1, end)..<end
  }
}

/// Sets of characters of RFC 3986, each as two 64-bit words: no global, no lazy initialisation.
enum URICharacter {
  /// `pchar`, `/` and `?` without `%`, and besides `[` and `]`, which browsers send in queries (WHATWG URL) and nobody misreads.
  @inline(__always)
  static func isPathOrQuery(_ byte: UInt8) -> Bool {
    // ! $ & ' ( ) * + , - . / 0-9 : ; = ?
    let low: UInt64 = 0xAFFF_FFD2_0000_0000
    // @ A-Z [ ] _ a-z ~
    let high: UInt64 = 0x47FF_FFFE_AFFF_FFFF
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }

  /// `unreserved` and `sub-delims`: what a registered name consists of, `%` aside (RFC 3986 §3.2.2).
  @inline(__always)
  static func isRegisteredName(_ byte: UInt8) -> Bool {
    // ! $ & ' ( ) * + , - . 0-9 ; =
    let low: UInt64 = 0x2BFF_7FD2_0000_0000
    // A-Z _ a-z ~
    let high: UInt64 = 0x47FF_FFFE_87FF_FFFE
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }
}

extension ASCII {
  @inline(__always)
  static func isHexDigit(_ byte: UInt8) -> Bool { isDigit(byte) || lowercased(byte) &- 0x61 < 6 }
}

extension Span where Element == UInt8 {
  /// `uri-host [":" port]` (RFC 9110 §7.2). User information (`user@`) is refused (§4.2.4), a comma and the like too:
  /// legal in a registered name, but only seen where two values were joined or something is tried on.
  func isHostAndPort() -> Bool {
    var index = 0
    if count > 0, self[0] == UInt8(ascii: "[") {
      // IP-literal: hexadecimal digits, colons and dots in brackets; zones (%25…) mean nothing to another machine.
      index = 1
      while index < count, ASCII.isHexDigit(self[index]) || self[index] == 0x3A || self[index] == 0x2E { index &+= 1 }
      guard index > 2, index < count, self[index] == UInt8(ascii: "]") else { return false }
      index &+= 1
    } else {
      while index < count, self[index] != UInt8(ascii: ":") {
        let byte = self[index]
        if byte == UInt8(ascii: "%") {
          guard index &+ 2 < count, ASCII.isHexDigit(self[index &+ 1]), ASCII.isHexDigit(self[index &+ 2]) else {
            return false
          }
        } else if !URICharacter.isRegisteredName(byte) || byte == UInt8(ascii: ",") {
          return false
        }
        index &+= 1
      }
      // A port needs a host before it; nothing at all is judged by the caller.
      if index == 0, count > 0 { return false }
    }
    guard index < count else { return true }
    guard self[index] == UInt8(ascii: ":"), count &- index <= 6 else { return false }
    guard index &+ 1 < count else { return true }
    guard let port = extracting((index &+ 1)..<count).decimalValue() else { return false }
    return port <= 65_535
  }
}
