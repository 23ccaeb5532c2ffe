import ByteStreams
import Inbox
import HTTPCodec

/// A query, compared with a reference that splits before decoding, and the value of `cursor`.
enum QueryTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    let query = Self.query(input)
    let expectedQuery = referenceQuery(bytes)
    try require(query == expectedQuery, "the query is read as \(query), by the reference as \(expectedQuery)")
    try readStart(input)
  }

  /// Names and values alternate. The last element is nil if the reader refused the rest.
  private static func query(_ input: Span<UInt8>) -> [[UInt8]?] {
    var result: [[UInt8]?] = []
    var reader = HTTPQueryReader(input)
    do throws(HTTPQueryError) {
      while try reader.next() { result += [[UInt8](copying: reader.name), [UInt8](copying: reader.value)] }
    } catch {
      result.append(nil)
    }
    return result
  }

  private static func referenceQuery(_ bytes: [UInt8]) -> [[UInt8]?] {
    var result: [[UInt8]?] = []
    for pair in bytes.split(separator: UInt8(ascii: "&")) {
      let halves = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
      guard let name = decoded(halves[0]),
        let value = decoded(halves.count > 1 ? halves[1] : [])
      else { return result + [nil] }
      result += [name, value]
    }
    return result
  }

  private static func decoded(_ bytes: ArraySlice<UInt8>) -> [UInt8]? {
    var result: [UInt8] = []
    var rest = bytes
    while let byte = rest.popFirst() {
      guard byte == UInt8(ascii: "%") else {
        result.append(byte == UInt8(ascii: "+") ? 0x20 : byte)
        continue
      }
      let digits = rest.prefix(2).compactMap { Character(Unicode.Scalar($0)).hexDigitValue }
      guard digits.count == 2, digits != [0, 0] else { return nil }
      rest = rest.dropFirst(2)
      result.append(UInt8(digits[0] * 16 + digits[1]))
    }
    return ReferenceUTF8.isValid(result) ? result : nil
  }

  /// A cursor that is parsed, written and parsed again is the same position.
  private static func readStart(_ input: Span<UInt8>) throws(Finding) {
    let start = StartingPoint(cursor: input)
    switch start {
    case .cursor(let cursor)?:
      var written = ByteQueue()
      cursor.write(into: &written)
      try require(written.count <= Cursor.maximumTextLength, "the cursor is written in \(written.count) bytes")
      let again = StartingPoint(cursor: written.bytes)
      try require(again == start, "the cursor \(cursor) differs after writing and parsing")
    case .since?, .last?, .validator?: try require(false, "a cursor is read as \(String(describing: start))")
    case .earliest?, .latest?, nil: break
    }
  }
}
