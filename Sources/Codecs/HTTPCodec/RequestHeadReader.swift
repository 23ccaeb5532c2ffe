import ByteStreams

/// Parses a request head, line by line, from the front of a connection's input (RFC 9112 §2, §3).
struct RequestHeadReader {
  private var lines = FieldLineReader()
  private(set) var hasRequestLine = false
  private var emptyLines: UInt16 = 0

  /// Returns the number of bytes of an empty line at the front of `input`, which the caller must drop (RFC 9112 §2.2).
  /// Returns zero if there is no such line. Must be called until it returns zero.
  mutating func leadingEmptyLine(_ input: Span<UInt8>, _ limits: HTTPLimits) throws(HTTPProtocolError) -> Int {
    guard !hasRequestLine, lines.isAtStart, input.count > 0 else { return 0 }
    if input[0] == 0x0A { throw .bareLineFeed }
    guard input[0] == 0x0D, input.count > 1 else { return 0 }
    guard input[1] == 0x0A else { throw .bareCarriageReturn }
    guard emptyLines < limits.leadingEmptyLines else { return try excessEmptyLine(input, limits) }
    emptyLines &+= 1
    return 2
  }

  /// Throws because there are too many empty lines. If they may be the beginning of a binary PROXY header, which has
  /// its own error, returns zero until more bytes have arrived.
  private func excessEmptyLine(_ input: Span<UInt8>, _ limits: HTTPLimits) throws(HTTPProtocolError) -> Int {
    let beginning: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0]
    let rest = beginning.dropFirst(2 * Int(emptyLines))
    for (index, byte) in zip(input.indices, rest) where input[index] != byte {
      throw .tooManyEmptyLines(limit: limits.leadingEmptyLines)
    }
    guard input.count < rest.count else {
      throw rest.isEmpty ? .tooManyEmptyLines(limit: limits.leadingEmptyLines) : .proxyHeader
    }
    return 0
  }

  /// Parses the head at the front of `input` as far as it has arrived. Returns its length in bytes once it is complete,
  /// else nil.
  ///
  /// Ranges in `head` are relative to the front of `input`. The caller fills `head.fields.section`.
  mutating func read(
    _ input: Span<UInt8>, into head: inout HTTPRequestHead, _ limits: HTTPLimits
  ) throws(HTTPProtocolError) -> Int? {
    if !hasRequestLine {
      guard try readRequestLine(input, into: &head, limits) else { return nil }
    }
    while true {
      switch try lines.readLine(of: input, into: &head.fields, isFirst: head.fields.isEmpty) {
      case .field:
        guard head.fields.count <= limits.fieldCount else { throw .tooManyFields(limit: limits.fieldCount) }
        guard lines.position <= limits.headBytes else { throw .headTooLarge(limit: limits.headBytes) }
      case .end:
        guard lines.position <= limits.headBytes else { throw .headTooLarge(limit: limits.headBytes) }
        return lines.position
      case .incomplete:
        guard input.count <= limits.headBytes else { throw .headTooLarge(limit: limits.headBytes) }
        return nil
      }
    }
  }

  private mutating func readRequestLine(
    _ input: Span<UInt8>, into head: inout HTTPRequestHead, _ limits: HTTPLimits
  ) throws(HTTPProtocolError) -> Bool {
    // A CR may begin an empty line or a message of another protocol. Any other byte begins a request line.
    guard !input.isEmpty, input[0] != 0x0D else { return false }
    try checkProtocol(input[0])
    head.removeAll()
    guard let line = try lines.startLine(of: input) else {
      // A CR at the end may belong to the CRLF, so it is not counted.
      let count = input[input.count &- 1] == 0x0D ? input.count &- 1 : input.count
      guard count <= limits.requestLineBytes else { throw .requestLineTooLong(limit: limits.requestLineBytes) }
      try checkBeginning(input)
      return false
    }
    guard line.count <= limits.requestLineBytes else { throw .requestLineTooLong(limit: limits.requestLineBytes) }
    try head.readRequestLine(input.extracting(line))
    hasRequestLine = true
    return true
  }

  /// Throws if the first byte begins another protocol. 0x16 begins a TLS record with a handshake (RFC 8446 §5.1). NUL
  /// after two empty lines continues a binary PROXY header, whose signature is CRLF CRLF NUL CRLF `QUIT` LF.
  private func checkProtocol(_ first: UInt8) throws(HTTPProtocolError) {
    if first == 0x16 { throw .tlsHandshake }
    if first == 0, emptyLines == 2 { throw .proxyHeader }
  }

  /// Throws if an incomplete line cannot become a request line, so that a client that speaks TLS or another protocol
  /// gets an error at once. Reads at most 24 bytes, so the check is cheap even if the input arrives byte by byte.
  private func checkBeginning(_ input: Span<UInt8>) throws(HTTPProtocolError) {
    for index in 0..<min(input.count, 24) {
      if input[index] == 0x20, index > 0 { return }
      guard ASCII.isToken(input[index]) else { throw .malformedMethod }
    }
  }
}

extension HTTPRequestHead {
  /// `method SP request-target SP HTTP-version` (RFC 9112 §3). `line` must be at the front of the section.
  mutating func readRequestLine(_ line: Span<UInt8>) throws(HTTPProtocolError) {
    var index = 0
    while index < line.count, ASCII.isToken(line[index]) { index &+= 1 }
    guard index < line.count else { throw .malformedRequestLine }
    guard index > 0, line[index] == 0x20 else { throw .malformedMethod }
    methodRange = 0..<index
    method = HTTPMethod.classify(line.extracting(methodRange))
    // The text form of the PROXY protocol.
    if method == .other, line.starts(with: "PROXY TCP") || line.starts(with: "PROXY UNKNOWN") { throw .proxyHeader }

    // The version is checked before the target, so that a client that speaks another protocol gets the error about the
    // version.
    let targetStart = index &+ 1
    guard line.count >= targetStart &+ 2, let space = line.lastSpace(), space > targetStart else {
      throw .malformedRequestLine
    }
    try readVersion(line.extracting((space &+ 1)..<line.count))
    targetRange = targetStart..<space
    try readTarget(line)
    if method == .connect { throw .methodNotSupported }
  }

  private mutating func readVersion(_ version: Span<UInt8>) throws(HTTPProtocolError) {
    guard version.count == 8, version.starts(with: "HTTP/"), version[6] == UInt8(ascii: "."),
      ASCII.isDigit(version[5]), ASCII.isDigit(version[7])
    else { throw .malformedVersion }
    guard version[5] == UInt8(ascii: "1") else { throw .versionNotSupported }
    isHTTP10 = version[7] == UInt8(ascii: "0")
  }
}

extension Span where Element == UInt8 {
  /// The index of the last space. Searches from the end, because a request line ends with a short version.
  fileprivate func lastSpace() -> Int? {
    var index = count &- 1
    while index >= 0 {
      if self[index] == 0x20 { return index }
      index &-= 1
    }
    return nil
  }
}
