import Testing

/// Proves a reader of bytes right however they arrive: whole, byte by byte, cut at every place, and with bytes behind.
///
/// - Parameters:
///   - expected: the events, as text.
///   - input: the bytes that must give them.
///   - trailing: bytes appended in one more run, which must begin with the same events.
///   - decode: feeds the pieces, in order, to a fresh codec, and answers its events. Events that say no more than
///     how bytes were cut (two pieces of one content) must be joined.
package func expectEvents(
  _ expected: [String], from input: [UInt8], trailing: [UInt8] = [], sourceLocation: SourceLocation = #_sourceLocation,
  decode: (_ pieces: [[UInt8]]) -> [String]
) {
  let whole = decode([input])
  #expect(whole == expected, "whole", sourceLocation: sourceLocation)
  // One report is enough: what fails whole fails cut, too.
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
