import ByteStreams
import HTTPCodec

/// A chunked request body. The decoder must read the same in pieces, in one piece, and as a simple decoder of whole
/// lines.
///
/// Input: a byte for the pieces, a byte for the limits, then the body with its trailer section and following requests.
enum ChunkedBodyTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let limits = reader.byte() & 1 == 0 ? HTTPLimits() : .tight
    let bytes = reader.rest
    let head: StaticString = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    let whole = try ServerReading.transcript(of: bytes, after: head, cutBy: .none, limits)
    let cut = try ServerReading.transcript(of: bytes, after: head, cutBy: cuts, limits)
    try whole.requireAgreement(with: cut, "in pieces it reads")
    try compareWithReference(bytes, cuts, limits)
  }

  private static func compareWithReference(
    _ bytes: Span<UInt8>, _ cuts: Cuts, _ limits: HTTPLimits
  ) throws(Finding) {
    var decoder = ChunkedDecoder()
    var data: [UInt8] = []
    var taken = 0
    var failure: HTTPProtocolError?
    pieces: for piece in cuts.pieces(of: bytes.count) {
      var offset = piece.lowerBound
      while offset < piece.upperBound, !decoder.isComplete {
        do throws(HTTPProtocolError) {
          let step = try decoder.step(bytes.extracting(offset..<piece.upperBound), limits)
          offset += step.framing
          data += [UInt8](copying: bytes.extracting(offset..<offset + step.data))
          offset += step.data
        } catch {
          failure = error
          break pieces
        }
      }
      taken = offset
      if decoder.isComplete { break }
    }

    let reference = ReferenceChunks([UInt8](copying: bytes))
    switch (failure, reference.ending) {
    case (nil, .complete(let size)):
      try require(decoder.isComplete && taken == size, "the last chunk ends at \(size), by the decoder at \(taken)")
      try require(data == reference.data, "the data differs from the reference's")
    case (nil, .incomplete):
      try require(
        !decoder.isComplete && data == reference.data, "the data differs from the reference's, which expects more")
    case (nil, .malformed(let reason)):
      throw Finding("accepted: \(reason)")
    case (let failure?, .complete), (let failure?, .incomplete):
      // The decoder may refuse an incomplete line early, and an exceeded limit is not an error of the framing.
      let isJustified = reference.ending == .incomplete || failure.status == .contentTooLarge
      try require(isJustified, "refused with '\(failure)', although it matches the grammar")
      try require(reference.data.starts(with: data), "the data before '\(failure)' differs from the reference's")
    case (_?, .malformed):
      try require(reference.data.starts(with: data), "other data than the reference before the failure")
    }
  }
}

/// Decodes chunked framing (RFC 9112 §7.1) from the complete bytes, line by line.
private struct ReferenceChunks {
  enum Ending: Equatable {
    /// The line of the last chunk ends at this offset.
    case complete(Int)
    case incomplete
    case malformed(String)
  }

  private(set) var data: [UInt8] = []
  private(set) var ending = Ending.incomplete

  init(_ bytes: [UInt8]) { ending = read(bytes) }

  private mutating func read(_ bytes: [UInt8]) -> Ending {
    var position = 0
    while true {
      let rest = bytes[position...]
      guard let lineFeed = rest.firstIndex(of: 0x0A) else { return .incomplete }
      guard lineFeed > position, bytes[lineFeed - 1] == 0x0D else { return .malformed("a line without CR") }
      let line = bytes[position..<lineFeed - 1]
      guard let size = Self.size(of: line) else { return .malformed("a bad size line") }
      position = lineFeed + 1
      if size == 0 { return .complete(position) }
      let available = min(size, UInt64(bytes.count - position))
      data += bytes[position..<position + Int(available)]
      position += Int(available)
      guard available == size else { return .incomplete }
      let end = bytes[position...].prefix(2)
      guard [0x0D, 0x0A].starts(with: end) else { return .malformed("no CRLF after the data") }
      guard end.count == 2 else { return .incomplete }
      position += 2
    }
  }

  /// `1*HEXDIG *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )`; nil for anything else.
  private static func size(of line: ArraySlice<UInt8>) -> UInt64? {
    let digits = line.prefix { ($0 | 0x20) >= 0x61 && ($0 | 0x20) <= 0x66 || $0 >= 0x30 && $0 <= 0x39 }
    guard (1...16).contains(digits.count), let size = UInt64(String(decoding: digits, as: UTF8.self), radix: 16) else {
      return nil
    }
    var rest = line.dropFirst(digits.count)
    while !rest.isEmpty {
      skipSpace(&rest)
      guard rest.popFirst() == UInt8(ascii: ";") else { return nil }
      skipSpace(&rest)
      guard takeToken(&rest) else { return nil }
      let afterName = rest
      skipSpace(&rest)
      guard rest.first == UInt8(ascii: "=") else {
        // The grammar does not allow whitespace at the end of the line.
        if rest.isEmpty, !afterName.isEmpty { return nil }
        continue
      }
      rest.removeFirst()
      skipSpace(&rest)
      guard rest.first == UInt8(ascii: "\"") ? takeQuoted(&rest) : takeToken(&rest) else { return nil }
    }
    return size
  }

  private static func skipSpace(_ rest: inout ArraySlice<UInt8>) {
    while rest.first == 0x20 || rest.first == 0x09 { rest.removeFirst() }
  }

  private static func takeToken(_ rest: inout ArraySlice<UInt8>) -> Bool {
    let token = rest.prefix(while: isToken)
    rest = rest.dropFirst(token.count)
    return !token.isEmpty
  }

  private static func takeQuoted(_ rest: inout ArraySlice<UInt8>) -> Bool {
    rest.removeFirst()
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "\"") { return true }
      let content = byte == UInt8(ascii: "\\") ? rest.popFirst() : byte
      guard let content, content == 0x09 || content >= 0x20, content != 0x7F else { return false }
    }
    return false
  }
}
