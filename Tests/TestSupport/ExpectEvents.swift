import Testing

/// Checks that a decoder returns the same events however its input is split: whole, byte by byte, cut at every index,
/// and with trailing bytes.
///
/// - Parameters:
///   - expected: the events, as text.
///   - input: the bytes to decode.
///   - trailing: bytes appended to the input in one more run, whose events must begin with `expected`.
///   - decode: passes the pieces, in order, to a new decoder and returns its events. Must join events that depend only
///     on how the input was cut, such as two pieces of one content.
package func expectEvents(
  _ expected: [String], from input: [UInt8], trailing: [UInt8] = [], sourceLocation: SourceLocation = #_sourceLocation,
  decode: (_ pieces: [[UInt8]]) -> [String]
) {
  let whole = decode([input])
  #expect(whole == expected, "whole", sourceLocation: sourceLocation)
  // If the whole input fails, the other runs fail as well, so one report is enough.
  guard whole == expected else { return }

  let dripped = decode(input.map { [$0] })
  #expect(dripped == expected, "byte by byte", sourceLocation: sourceLocation)

  for split in 0...input.count {
    let events = decode([Array(input[..<split]), Array(input[split...])])
    guard events != expected else { continue }
    #expect(events == expected, "cut at \(split)", sourceLocation: sourceLocation)
    return
  }

  if !trailing.isEmpty {
    let events = decode([input + trailing])
    #expect(Array(events.prefix(expected.count)) == expected, "with trailing bytes", sourceLocation: sourceLocation)
  }
}

package func expectEvents(
  _ expected: [String], from input: String, trailing: String = "", sourceLocation: SourceLocation = #_sourceLocation,
  decode: (_ pieces: [[UInt8]]) -> [String]
) {
  expectEvents(
    expected, from: Array(input.utf8), trailing: Array(trailing.utf8), sourceLocation: sourceLocation, decode: decode)
}
