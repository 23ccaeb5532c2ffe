import ByteStreams

extension HTTPRequestHead {
  /// Splits the target into its parts and validates them (RFC 9112 §3.2).
  mutating func readTarget(_ line: Span<UInt8>) throws(HTTPProtocolError) {
    let start = targetRange.lowerBound
    let end = targetRange.upperBound
    authorityRange = 0..<0
    hasEscapes = false
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
        hasEscapes = true
      } else if byte == UInt8(ascii: "?"), question == end {
        question = index
      }
      index &+= 1
    }
    pathRange = start..<question
    queryRange = min(question &+ 1, end)..<end
  }
}
