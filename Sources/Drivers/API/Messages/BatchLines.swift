import ByteStreams

/// Splits the body of a batch into its lines. A line ends with LF or CRLF, and empty lines are skipped.
///
/// Lines are copied out of the body in pieces of up to `pieceBytes`. A message that stays queued longer than its
/// neighbours keeps at most the memory of its piece. The limits of the queue count only the bytes of the message
/// itself.
enum BatchLines {
  /// Large enough for one allocation per 40 messages of 100 bytes. Small enough that 1,024 messages, the default limit
  /// of a queue, keep no more than 4 MiB, the default limit of its bytes.
  private static var pieceBytes: Int { 4_096 }

  /// Expected bytes per line. The memory for the result is reserved for lines of this size, and grows if lines are
  /// shorter.
  private static var expectedBytes: Int { 64 }

  /// Maximum number of empty lines. An empty line takes about as much time as a message, but is not counted towards the
  /// limit of messages.
  static var maximumEmptyLines: Int { 65_536 }

  /// - Parameters:
  ///   - limit: maximum number of non-empty lines. Returns nil if there are more, or more than `maximumEmptyLines`
  ///     empty lines.
  ///   - sharesStorage: whether lines may have a common storage; false if the messages may leave the queue at very
  ///     different times.
  static func split(_ text: Span<UInt8>, atMost limit: Int, sharesStorage: Bool) -> [ByteSlice]? {
    var lines: [ByteSlice] = []
    lines.reserveCapacity(min(limit, text.count / expectedBytes + 1))
    var start = 0
    var emptyLines = 0
    // The text is split piece by piece, so that the memory depends on `limit` and not on the number of lines in the
    // body.
    while start < text.count {
      let end = endOfPiece(in: text, from: start, bytes: sharesStorage ? pieceBytes : 0)
      let piece = ByteString(copying: text.extracting(start..<end))
      start = end
      guard append(piece, to: &lines, atMost: limit, &emptyLines) else { return nil }
    }
    return lines
  }

  /// The number of the first line that is not UTF-8, counted from 1.
  static func firstInvalid(in text: Span<UInt8>) -> Int {
    var number = 1
    var start = 0
    while start < text.count {
      let end = endOfLine(in: text, from: start)
      guard UTF8StreamValidator.isValid(text.extracting(start..<end)) else { break }
      start = end
      number += 1
    }
    return number
  }

  private static func append(
    _ piece: ByteString, to lines: inout [ByteSlice], atMost limit: Int, _ emptyLines: inout Int
  ) -> Bool {
    let text = piece.bytes
    var start = 0
    while start < text.count {
      let next = endOfLine(in: text, from: start)
      var end = next
      if end > start, text[end - 1] == UInt8(ascii: "\n") { end -= 1 }
      if end > start, text[end - 1] == UInt8(ascii: "\r") { end -= 1 }
      if end > start {
        guard lines.count < limit else { return false }
        lines.append(ByteSlice(piece, range: start..<end))
      } else {
        emptyLines += 1
        guard emptyLines <= maximumEmptyLines else { return false }
      }
      start = next
    }
    return true
  }

  /// The index after the line that begins at `start`, and after its LF if it has one.
  private static func endOfLine(in text: Span<UInt8>, from start: Int) -> Int {
    text.firstIndex(of: UInt8(ascii: "\n"), from: start).map { $0 + 1 } ?? text.count
  }

  /// The index after the last line that ends within `bytes` of `start`, or after the first line if it is longer.
  private static func endOfPiece(in text: Span<UInt8>, from start: Int, bytes: Int) -> Int {
    if text.count - start <= bytes { return text.count }
    var end = start + bytes
    while end > start {
      if text[end - 1] == UInt8(ascii: "\n") { return end }
      end -= 1
    }
    return endOfLine(in: text, from: start)
  }
}
