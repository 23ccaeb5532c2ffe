import ByteStreams

/// Reads the lines of a head or trailer section as they arrive.
///
/// The reader records how far an incomplete line was searched, and parses the line when its end has arrived. For any
/// division of the input into pieces, each byte is read at most twice, and a forbidden control character is rejected
/// when it arrives.
struct FieldLineReader {
  enum Line { case field, end, incomplete }

  /// The offset of the next line from the start of the section.
  private(set) var position = 0
  /// The offset up to which the incomplete line was searched for its end.
  private var searched = 0

  /// Whether no byte of the section was read yet.
  var isAtStart: Bool { position == 0 && searched == 0 }

  /// Returns the range of the start line without its CRLF, or nil if it is incomplete. The line has no control
  /// characters except tab.
  mutating func startLine(of section: Span<UInt8>) throws(HTTPProtocolError) -> Range<Int>? {
    let start = position
    guard let end = try endOfLine(in: section, from: max(searched, position)) else { return nil }
    position = end &+ 2
    searched = position
    return start..<end
  }

  /// Reads one field line of `section` and appends it to `fields`.
  ///
  /// - Parameter isFirst: whether this is the first field line, which decides the error for leading whitespace.
  @inline(__always)
  mutating func readLine(
    of section: Span<UInt8>, into fields: inout HTTPFields, isFirst: Bool
  ) throws(HTTPProtocolError) -> Line {
    let count = section.count
    let start = position
    if searched > start {
      // At the previous call, the line was incomplete. It is parsed again only if its end has arrived now.
      guard try endOfLine(in: section, from: searched) != nil else { return .incomplete }
    }
    guard start < count else { return .incomplete }
    let first = section[start]
    if first == 0x0D {
      guard start &+ 1 < count else { return .incomplete }
      guard section[start &+ 1] == 0x0A else { throw .bareCarriageReturn }
      position = start &+ 2
      return .end
    }
    var index = start
    while index < count, ASCII.isToken(section[index]) { index &+= 1 }
    if index == count { return incomplete(section) }
    guard section[index] == UInt8(ascii: ":"), index > start else {
      guard let error = Self.nameError(section, from: start, to: index, isFirst: isFirst) else {
        return incomplete(section)
      }
      throw error
    }
    let nameEnd = index
    index &+= 1
    while index < count, section[index] == 0x20 || section[index] == 0x09 { index &+= 1 }
    let valueStart = index
    guard let lineEnd = try endOfLine(in: section, from: index) else { return .incomplete }
    var valueEnd = lineEnd
    while valueEnd > valueStart, section[valueEnd &- 1] == 0x20 || section[valueEnd &- 1] == 0x09 { valueEnd &-= 1 }
    guard nameEnd &- start <= Int(UInt16.max) else { throw .malformedFieldName }
    let name = unsafe HTTPFieldName.classify(section.bytes.extracting(start..<nameEnd))
    fields.append(
      HTTPFields.Slot(
        nameStart: UInt32(truncatingIfNeeded: start), valueStart: UInt32(truncatingIfNeeded: valueStart),
        valueCount: UInt32(truncatingIfNeeded: valueEnd &- valueStart),
        nameCount: UInt16(truncatingIfNeeded: nameEnd &- start), name: name))
    position = lineEnd &+ 2
    searched = position
    return .field
  }

  private mutating func incomplete(_ section: Span<UInt8>) -> Line {
    searched = section.count
    return .incomplete
  }

  /// Returns the index of the CR of the line's CRLF. If the CRLF has not arrived, returns nil, and sets `searched` to
  /// the offset at which the next search begins.
  @inline(__always)
  private mutating func endOfLine(in section: Span<UInt8>, from start: Int) throws(HTTPProtocolError) -> Int? {
    let end = section.firstControl(from: start)
    guard end < section.count else {
      searched = section.count
      return nil
    }
    guard section[end] == 0x0D else {
      throw section[end] == 0x0A ? .bareLineFeed : .forbiddenByte(section[end])
    }
    guard end &+ 1 < section.count else {
      searched = end
      return nil
    }
    guard section[end &+ 1] == 0x0A else { throw .bareCarriageReturn }
    return end
  }

  /// The error in a line whose field name ends at `end` and has no colon after it, or nil if more bytes are needed to
  /// decide.
  private static func nameError(
    _ section: Span<UInt8>, from start: Int, to end: Int, isFirst: Bool
  ) -> HTTPProtocolError? {
    switch section[end] {
    case 0x20, 0x09:
      if end == start { return isFirst ? .whitespaceBeforeFirstField : .foldedField }
      var index = end
      while index < section.count, section[index] == 0x20 || section[index] == 0x09 { index &+= 1 }
      guard index < section.count else { return nil }
      return section[index] == UInt8(ascii: ":") ? .whitespaceBeforeColon : .missingColon
    case 0x0D: return .missingColon
    case 0x0A: return .bareLineFeed
    default: return .malformedFieldName
    }
  }
}

extension Span where Element == UInt8 {
  /// The index of the first byte from `start` that a line must not contain: a control character other than tab, or DEL.
  /// `count` if there is none. Reads eight bytes at a time.
  @inline(__always)
  func firstControl(from start: Int) -> Int {
    let raw = unsafe bytes
    let size = count
    var index = start
    while index &+ 8 <= size {
      let word = unsafe raw.unsafeLoadUnaligned(fromByteOffset: index, as: UInt64.self)
      var mask = Self.controls(in: word)
      while mask != 0 {
        let offset = index &+ mask.trailingZeroBitCount >> 3
        // A borrow in the subtraction may also flag the byte above a control character, so the byte itself is checked.
        let byte = self[offset]
        if byte != 0x09, byte < 0x20 || byte == 0x7F { return offset }
        mask &= mask &- 1
      }
      index &+= 8
    }
    while index < size {
      let byte = self[index]
      if byte != 0x09, byte < 0x20 || byte == 0x7F { return index }
      index &+= 1
    }
    return size
  }

  /// Sets bit 7 of each byte of `word` that is below 0x20 or is 0x7F. May also set bit 7 of the byte above such a byte.
  @inline(__always)
  private static func controls(in word: UInt64) -> UInt64 {
    let del = word ^ 0x7F7F_7F7F_7F7F_7F7F
    let low = (word &- 0x2020_2020_2020_2020) & ~word
    let isDel = (del &- 0x0101_0101_0101_0101) & ~del
    return (low | isDel) & 0x8080_8080_8080_8080
  }
}
