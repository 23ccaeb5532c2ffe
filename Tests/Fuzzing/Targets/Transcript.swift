import ByteStreams

/// The events that a parser reported, in a flat form that is fast to write and to compare. Content reported in pieces
/// is joined.
struct Transcript<Failure: Error & Equatable> {
  private(set) var bytes: [UInt8] = []
  /// The start of the entry to which more content is appended; nil if the next content starts a new entry.
  private var openEntry: Int?
  /// The error that ended the reading.
  var failure: Failure?

  init() { bytes.reserveCapacity(256) }

  private static var headerBytes: Int { 5 }

  mutating func note(_ kind: Unicode.Scalar, _ content: Span<UInt8> = Span()) {
    openEntry = bytes.count
    bytes.append(UInt8(ascii: kind))
    for _ in 0..<4 { bytes.append(0) }
    append(content)
    openEntry = nil
  }

  mutating func note(_ kind: Unicode.Scalar, _ content: [UInt8]) { note(kind, content.span) }

  mutating func note(_ kind: Unicode.Scalar, number: Int) {
    note(kind, withUnsafeBytes(of: number.bigEndian) { Array($0) })
  }

  /// Records a piece of content. The next piece is appended to it.
  mutating func noteContent(_ content: Span<UInt8>) {
    if openEntry == nil {
      note("+")
      openEntry = bytes.count - Self.headerBytes
    }
    append(content)
  }

  private mutating func append(_ content: Span<UInt8>) {
    guard let entry = openEntry, !content.isEmpty else { return }
    content.withUnsafeBytes { bytes.append(contentsOf: $0) }
    let length = UInt32(bytes.count - entry - Self.headerBytes)
    for place in 0..<4 { bytes[entry + 1 + place] = UInt8(truncatingIfNeeded: length >> UInt32(24 - 8 * place)) }
  }

  /// Whether two runs over the same bytes reported the same events, and either both failed or neither. Their errors may
  /// differ, since the pieces can decide which of several errors is found first.
  func agrees(with other: Transcript) -> Bool {
    (failure == nil) == (other.failure == nil) && bytes == other.bytes
  }
}

extension Transcript: CustomStringConvertible {
  var description: String {
    var lines: [String] = []
    var rest = bytes[...]
    while rest.count >= Self.headerBytes {
      let kind = Character(Unicode.Scalar(rest.removeFirst()))
      let length = rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
      rest = rest.dropFirst(4)
      lines.append("\(kind) \(String(reflecting: String(decoding: rest.prefix(length), as: UTF8.self)))")
      rest = rest.dropFirst(length)
    }
    if let failure { lines.append("failure: \(failure)") }
    return lines.joined(separator: "\n")
  }
}

extension Transcript {
  /// Requires that two runs agree. `how` describes the second run.
  func requireAgreement(with other: Transcript, _ how: String) throws(Finding) {
    try require(agrees(with: other), "in one piece it reads\n\(self)\nbut \(how)\n\(other)")
  }
}
