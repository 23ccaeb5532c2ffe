import ByteStreams
import ProxyCodec

/// The header of the PROXY protocol at the beginning of a connection.
///
/// Input: the bytes that a proxy sends.
enum ProxyHeaderTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let whole = outcome(input)
    if case .header(let header) = whole {
      try require(
        header.length <= min(input.count, ProxyHeader.maximumLength), "a header of \(header.length) bytes")
      if input.starts(with: "PROXY ") {
        try require(
          ReferenceProxyLine.accepts(input.extracting(first: header.length)), "a line that the grammar does not allow")
      }
    }
    // The outcome does not depend on the pieces, and needs no byte after the header.
    var isDecided = false
    for count in 0...input.count {
      switch (outcome(input.extracting(first: count)), whole) {
      case (.incomplete, .incomplete): break
      case (.incomplete, .header(let header)):
        try require(count < header.length, "\(count) bytes are incomplete, and the header has \(header.length)")
      case (.incomplete, .refused): try require(!isDecided, "\(count) bytes are incomplete, and fewer are refused")
      case (.header(let part), .header(let header)): try require(part == header, "\(count) bytes are another header")
      case (.refused, .refused): isDecided = true
      case (let part, _): throw Finding("\(count) bytes are \(part), and all \(input.count) are \(whole)")
      }
    }
  }

  private enum Outcome {
    case incomplete, refused
    case header(ProxyHeader)
  }

  private static func outcome(_ bytes: Span<UInt8>) -> Outcome {
    do throws(ProxyHeaderError) {
      return try ProxyHeader.read(bytes).map(Outcome.header) ?? .incomplete
    } catch {
      return .refused
    }
  }
}

/// The grammar of version 1 (§2.1), word by word.
private enum ReferenceProxyLine {
  static func accepts(_ bytes: Span<UInt8>) -> Bool {
    guard bytes.count <= 107 else { return false }
    // Each byte is one character, so that Swift does not join CR and LF into one character.
    let scalars = [UInt8](copying: bytes).map { Unicode.Scalar($0) }
    guard scalars.suffix(2) == ["\r", "\n"], !scalars.dropLast(2).contains("\r") else { return false }
    let words = scalars.dropLast(2).split(separator: " ", omittingEmptySubsequences: false).map { word in
      word.reduce(into: "") { $0.unicodeScalars.append($1) }
    }
    guard words.count > 1, words[0] == "PROXY" else { return false }
    if words[1] == "UNKNOWN" { return true }
    guard words.count == 6, words[1] == "TCP4" || words[1] == "TCP6" else { return false }
    let addresses = words[2...3].map { IPAddress($0) }
    guard addresses.allSatisfy({ $0?.isIPv6 == (words[1] == "TCP6") }) else { return false }
    return words[4...5].allSatisfy { word in UInt16(word).map { String($0) == word } ?? false }
  }
}
