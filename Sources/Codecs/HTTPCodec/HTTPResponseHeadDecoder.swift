import ByteStreams

/// Parses the head of one response, for example the response to a WebSocket upgrade or to CONNECT.
///
/// It is as strict as the parser of request heads. Bytes after the head are left to the caller: frames may follow a 101
/// response in the same segment. After an error the decoder must not be used.
///
///     let taken = try decoder.append(received)
///     if decoder.isComplete { … decoder.status, decoder.fields; received from `taken` on is not HTTP … }
package struct HTTPResponseHeadDecoder: ~Copyable {
  private let limits: HTTPLimits
  private var reader = FieldLineReader()
  private var reasonRange = 0..<0
  private var hasStatusLine = false

  /// The fields that were parsed so far. All fields, if `isComplete`.
  package private(set) var fields = HTTPFields()

  /// Whether the empty line after the fields was read.
  package private(set) var isComplete = false

  /// The status code. Valid if `isComplete`.
  package private(set) var status = HTTPStatus.badGateway

  /// Whether the response is HTTP/1.0. An upgrade requires 1.1 (RFC 9110 §7.8).
  package private(set) var isHTTP10 = false

  package init(limits: HTTPLimits = HTTPLimits()) { self.limits = limits }

  /// The reason phrase, often empty. For display only.
  package var reason: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(reasonRange) }
  }

  /// The bytes of the head as received.
  package var head: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes }
  }

  /// Takes the bytes that belong to the head and returns their number: all of `bytes` unless `isComplete` becomes true.
  package mutating func append(_ bytes: Span<UInt8>) throws(HTTPProtocolError) -> Int {
    precondition(!isComplete, "the head is complete: begin() before reading the next one")
    let before = fields.section.count
    // At most one byte more than the limit is stored, however much arrives at once.
    fields.section.append(bytes.extracting(first: max(0, min(bytes.count, limits.headBytes &+ 1 &- before))))
    guard try readLines() else {
      guard fields.section.count <= limits.headBytes else { throw .headTooLarge(limit: limits.headBytes) }
      return bytes.count
    }
    guard reader.position <= limits.headBytes else { throw .headTooLarge(limit: limits.headBytes) }
    isComplete = true
    let surplus = fields.section.count &- reader.position
    fields.section.removeLast(surplus)
    return reader.position &- before
  }

  /// Moves the bytes that belong to the head from the front of `input`. Returns true once the head is complete.
  package mutating func take(from input: inout ByteQueue) throws(HTTPProtocolError) -> Bool {
    let taken = try append(input.bytes)
    input.consume(taken)
    return isComplete
  }

  /// Prepares for the next head, for example after an interim (1xx) response. Keeps the memory.
  package mutating func begin() {
    fields.removeAll()
    reader = FieldLineReader()
    reasonRange = 0..<0
    hasStatusLine = false
    isComplete = false
    status = .badGateway
    isHTTP10 = false
  }

  /// Parses complete lines. Returns true at the end of the head.
  private mutating func readLines() throws(HTTPProtocolError) -> Bool {
    // The section is moved out of `fields` and back, because the reader reads the section while it fills the slots of
    // `fields`.
    var section = ByteQueue()
    swap(&section, &fields.section)
    defer { swap(&section, &fields.section) }
    if !hasStatusLine {
      guard let line = try reader.startLine(of: section.bytes) else {
        try checkBeginning(section.bytes)
        return false
      }
      try readStatusLine(section.bytes, line)
      hasStatusLine = true
    }
    while true {
      switch try reader.readLine(of: section.bytes, into: &fields, isFirst: fields.isEmpty) {
      case .field:
        guard fields.count <= limits.fieldCount else { throw .tooManyFields(limit: limits.fieldCount) }
      case .end: return true
      case .incomplete: return false
      }
    }
  }

  /// Throws if an incomplete line cannot become a status line, so that a peer that speaks another protocol is detected
  /// at once.
  private func checkBeginning(_ bytes: Span<UInt8>) throws(HTTPProtocolError) {
    let expected: StaticString = "HTTP/1."
    for index in 0..<min(bytes.count, expected.utf8CodeUnitCount)
    where unsafe expected.utf8Start[index] != bytes[index] { throw .malformedStatusLine }
  }

  /// `HTTP/1.1 101 Switching Protocols` (RFC 9112 §4). The space after the code may be missing if there is no reason
  /// phrase.
  private mutating func readStatusLine(_ bytes: Span<UInt8>, _ range: Range<Int>) throws(HTTPProtocolError) {
    let line = bytes.extracting(range)
    guard line.count >= 12, line.starts(with: "HTTP/1."), line[8] == 0x20, line.count == 12 || line[12] == 0x20 else {
      throw .malformedStatusLine
    }
    switch line[7] {
    case UInt8(ascii: "1"): isHTTP10 = false
    case UInt8(ascii: "0"): isHTTP10 = true
    default: throw .malformedStatusLine
    }
    guard let code = line.extracting(9..<12).decimalValue(), code >= 100 else { throw .malformedStatusLine }
    status = HTTPStatus(rawValue: UInt16(code))
    reasonRange = min(range.lowerBound &+ 13, range.upperBound)..<range.upperBound
  }
}
