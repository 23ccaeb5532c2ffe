import ByteStreams

/// Reads the replies of a Redis server (RESP2). It has no socket.
///
/// A string is copied once, from the input into its reply. A string stays in the input until it is complete. Every
/// other value is removed from the input at once, so that no byte is parsed twice.
///
///     while let reply = try reader.next(from: &input) { … }
///
/// After an error the reader must not be used, since it is unknown where the next reply begins.
package struct RESPReader: ~Copyable {
  /// An array whose values are arriving.
  private struct OpenArray {
    let count: Int
    var elements: [RESPReply] = []
  }

  private let limits: RESPLimits
  /// The arrays that are arriving, the outermost first.
  private var open: [OpenArray] = []
  /// Number of bytes of the arriving reply so far, including announced bytes of a string that have not arrived.
  private var replyBytes = 0
  private var replyElements = 0
  /// The length of the string whose header has been read; nil if no string is arriving.
  private var pendingString: Int?
  /// Bytes of the current line that were searched without finding a LF.
  private var searched = 0

  /// The maximum number of elements for which an array reserves memory before they arrive.
  private static var reservedElements: Int { 64 }

  package init(limits: RESPLimits = RESPLimits()) { self.limits = limits }

  /// Whether part of a reply has been read. If so, the end of the stream would truncate the reply.
  package var isInsideReply: Bool { !open.isEmpty || pendingString != nil }

  /// Number of elements for which the arriving arrays have allocated memory.
  var allocatedElements: Int { open.reduce(0) { $0 + $1.elements.capacity } }

  /// Removes the next complete reply from `input`, and returns it; nil if more bytes are needed.
  package mutating func next(from input: inout ByteQueue) throws(RESPProtocolError) -> RESPReply? {
    while let value = try nextValue(from: &input) {
      if let reply = close(with: value) {
        replyBytes = 0
        replyElements = 0
        return reply
      }
    }
    return nil
  }

  /// Adds `value` to the innermost array. Returns the reply if it is complete.
  private mutating func close(with value: RESPReply) -> RESPReply? {
    var value = value
    while let last = open.indices.last {
      open[last].elements.append(value)
      guard open[last].elements.count == open[last].count else { return nil }
      value = .array(open.removeLast().elements)
    }
    return value
  }

  /// The next value that is not an array with elements; nil if more bytes are needed.
  private mutating func nextValue(from input: inout ByteQueue) throws(RESPProtocolError) -> RESPReply? {
    while true {
      if let count = pendingString { return try readString(count, from: &input) }
      guard let end = try lineEnd(in: input) else { return nil }
      let value = try readLine(input.bytes.extracting(first: end))
      input.consume(end + 2)
      searched = 0
      if let value { return value }
    }
  }

  /// The position of the CR that ends the line at the beginning of `input`.
  private mutating func lineEnd(in input: borrowing ByteQueue) throws(RESPProtocolError) -> Int? {
    let bytes = input.bytes
    if searched == 0, let first = bytes.indices.first { try Self.checkType(bytes[first]) }
    guard let lineFeed = bytes.firstIndex(of: UInt8(ascii: "\n"), from: searched) else {
      // The CR may have arrived without its LF.
      guard bytes.count <= limits.lineBytes + 1 else { throw .lineTooLong(limit: limits.lineBytes) }
      searched = bytes.count
      return nil
    }
    let end = lineFeed - 1
    guard end <= limits.lineBytes else { throw .lineTooLong(limit: limits.lineBytes) }
    guard bytes[end] == UInt8(ascii: "\r"), bytes.firstIndex(of: UInt8(ascii: "\r")) == end else {
      throw .malformedLine
    }
    return end
  }

  private static func checkType(_ byte: UInt8) throws(RESPProtocolError) {
    switch byte {
    case UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: ":"), UInt8(ascii: "$"), UInt8(ascii: "*"): break
    default: throw .unknownType(byte)
    }
  }

  /// Reads a line without its CRLF. Returns nil if it is the header of a string or of an array with elements.
  private mutating func readLine(_ line: Span<UInt8>) throws(RESPProtocolError) -> RESPReply? {
    try count(bytes: line.count + 2)
    let content = line.extracting(1..<line.count)
    switch line[0] {
    case UInt8(ascii: "*"):
      guard let length = try Self.length(content) else { break }
      guard open.count < limits.depth else { throw .tooDeep(limit: limits.depth) }
      guard length <= limits.elements - replyElements else { throw .tooManyElements(limit: limits.elements) }
      replyElements += length
      guard length > 0 else { return .array([]) }
      var array = OpenArray(count: length)
      array.elements.reserveCapacity(min(length, Self.reservedElements))
      open.append(array)
      return nil
    case UInt8(ascii: "$"):
      guard let length = try Self.length(content) else { break }
      // The length is checked first, so that the addition of the CRLF cannot overflow.
      guard length <= limits.replyBytes else { throw .replyTooLarge(limit: limits.replyBytes) }
      try count(bytes: length + 2)
      pendingString = length
      return nil
    case UInt8(ascii: "+"): return .simple(content.text())
    case UInt8(ascii: "-"): return .error(content.text())
    default: return .integer(try Self.integer(content))
    }
    return .null
  }

  /// Returns nil if the string or its CRLF is incomplete.
  private mutating func readString(_ count: Int, from input: inout ByteQueue) throws(RESPProtocolError) -> RESPReply? {
    guard input.count >= count + 2 else { return nil }
    let value = try Self.string(count, input.bytes)
    input.consume(count + 2)
    pendingString = nil
    return .bulk(value)
  }

  private static func string(_ count: Int, _ bytes: Span<UInt8>) throws(RESPProtocolError) -> [UInt8] {
    guard bytes[count] == UInt8(ascii: "\r"), bytes[count + 1] == UInt8(ascii: "\n") else { throw .missingLineEnd }
    return [UInt8](copying: bytes.extracting(first: count))
  }

  private mutating func count(bytes: Int) throws(RESPProtocolError) {
    replyBytes += bytes
    guard replyBytes <= limits.replyBytes else { throw .replyTooLarge(limit: limits.replyBytes) }
  }

  /// Returns nil for -1, the length of the nil string and the nil array.
  private static func length(_ digits: Span<UInt8>) throws(RESPProtocolError) -> Int? {
    if digits.equals("-1") { return nil }
    guard let length = digits.decimalValue() else { throw .malformedLength }
    return length
  }

  private static func integer(_ text: Span<UInt8>) throws(RESPProtocolError) -> Int64 {
    let isNegative = text.starts(with: "-")
    let digits = isNegative || text.starts(with: "+") ? text.extracting(1..<text.count) : text
    if let value = digits.decimalValue() { return isNegative ? -Int64(value) : Int64(value) }
    // The absolute value of this number does not fit into an Int64, so the number is compared as text.
    if text.equals("-9223372036854775808") { return .min }
    throw .malformedInteger
  }
}
