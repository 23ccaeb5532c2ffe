import ByteStreams

extension HTTPRequestHead {
  /// Validates the fields that affect the connection: Host, framing, persistence, expectation. `fields.section` must
  /// already contain the bytes of the head.
  mutating func readFields(_ limits: HTTPLimits) throws(HTTPProtocolError) {
    try rejectRepeatedFields()
    try readHost()
    try readFraming(limits)
    try readExpectation()
    readPersistence()
  }

  private func rejectRepeatedFields() throws(HTTPProtocolError) {
    var repeated = fields.repeated
    while repeated != 0 {
      let name = HTTPFieldName(rawValue: UInt8(truncatingIfNeeded: repeated.trailingZeroBitCount)) ?? .other
      if name.isSingleton { throw name == .contentLength ? .repeatedContentLength : .repeatedField(name) }
      repeated &= repeated &- 1
    }
  }

  /// RFC 9112 §3.2: HTTP/1.1 requires one valid Host. The authority of an absolute target overrides it.
  private mutating func readHost() throws(HTTPProtocolError) {
    guard let index = fields.index(of: .host) else {
      guard isHTTP10 else { throw .missingHost }
      return
    }
    guard fields.value(at: index).isHostAndPort() else { throw .malformedHost }
    if targetForm != .absolute {
      let slot = fields[index]
      authorityRange = Int(slot.valueStart)..<Int(slot.valueStart) &+ Int(slot.valueCount)
    }
  }

  /// RFC 9112 §6.1–6.3. If the RFC allows a server either to repair or to reject a message, this server rejects it: if
  /// two servers read one message differently, request smuggling becomes possible.
  private mutating func readFraming(_ limits: HTTPLimits) throws(HTTPProtocolError) {
    if fields.contains(.transferEncoding) {
      if fields.contains(.contentLength) { throw .contentLengthWithTransferEncoding }
      if isHTTP10 { throw .transferEncodingInHTTP10 }
      try fields.requireChunked()
      framing = .chunked
      return
    }
    // Some HTTP/1.0 clients mark the end of their content by the end of the connection. Such a request is refused,
    // since its content would otherwise be read as empty and be lost unnoticed.
    if isHTTP10, method == .post, !fields.contains(.contentLength) { throw .missingContentLength }
    let length = try contentLength(limits)
    framing = length == 0 ? .none : .length(length)
  }

  /// The value of Content-Length (RFC 9112 §6.2), or zero if it is absent.
  private func contentLength(_ limits: HTTPLimits) throws(HTTPProtocolError) -> Int {
    guard let value = fields.first(.contentLength) else { return 0 }
    guard !value.isEmpty, value.isAllDigits() else { throw .malformedContentLength }
    guard let length = value.withoutLeadingZeros().decimalValue(), length <= limits.bodyBytes else {
      throw .contentTooLarge(limit: limits.bodyBytes)
    }
    return length
  }

  /// RFC 9110 §10.1.1. HTTP/1.0 has no expectations, so the field is ignored there.
  private mutating func readExpectation() throws(HTTPProtocolError) {
    guard fields.contains(.expect), !isHTTP10 else { return }
    var known = true
    fields.forEachElement(of: .expect) { expectation in
      if !expectation.equalsIgnoringCase("100-continue") { known = false }
    }
    guard known else { throw .expectationNotSupported }
    expectsContinue = framing != .none
  }

  /// RFC 9112 §9.3.
  private mutating func readPersistence() {
    guard fields.contains(.connection) else {
      keepsAlive = !isHTTP10
      return
    }
    if fields.list(.connection, contains: "close") {
      keepsAlive = false
    } else {
      keepsAlive = !isHTTP10 || fields.list(.connection, contains: "keep-alive")
    }
  }
}

extension HTTPFields {
  /// Accepts only `chunked` as Transfer-Encoding. Other codings, alone or before `chunked`, get 501. Any other value
  /// leaves the end of the message undefined, and is malformed.
  func requireChunked() throws(HTTPProtocolError) {
    var chunked = 0
    var others = 0
    var lastIsChunked = false
    forEachElement(of: .transferEncoding) { coding in
      lastIsChunked = coding.equalsIgnoringCase("chunked")
      if lastIsChunked { chunked += 1 } else { others += 1 }
    }
    guard lastIsChunked, chunked == 1 else {
      throw chunked == 0 && others > 0 ? .transferCodingNotSupported : .malformedTransferEncoding
    }
    guard others == 0 else { throw .transferCodingNotSupported }
  }
}

extension Span where Element == UInt8 {
  func isAllDigits() -> Bool {
    for index in indices where !ASCII.isDigit(self[index]) { return false }
    return true
  }
}
