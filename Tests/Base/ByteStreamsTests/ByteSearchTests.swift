import ByteStreams
import Testing

@Suite struct ByteSearchTests {
  /// The search reads whole words, and uses other code for the bytes after the last word.
  @Test func findsTheFirstMatchAtEveryPosition() {
    // A wrong borrow in the arithmetic on words could mistake a neighbouring byte for the searched byte.
    for (byte, neighbour) in [(0x0A, 0x0B), (0x00, 0x01), (0x80, 0x7F), (0xFF, 0x00)] as [(UInt8, UInt8)] {
      for count in 0...40 {
        for place in 0..<count {
          var bytes = [UInt8](repeating: neighbour, count: count)
          bytes[place] = byte
          if place + 3 < count { bytes[place + 3] = byte }
          for start in [0, place / 2, place] {
            #expect(bytes.span.firstIndex(of: byte, from: start) == place)
          }
          bytes[place...] = [UInt8](repeating: neighbour, count: count - place)[...]
          #expect(bytes.span.firstIndex(of: byte) == nil)
        }
      }
    }
  }

  /// `#expect` cannot decompose a call on a span.
  private func equal(_ left: [UInt8], _ right: [UInt8]) -> Bool { left.span.equals(right.span) }

  private func equal(_ left: String, _ right: StaticString) -> Bool { Array(left.utf8).span.equals(right) }

  private func isASCII(_ bytes: [UInt8]) -> Bool { bytes.span.isASCII }

  @Test func comparesEveryByte() {
    for count in 0...20 {
      let bytes = (0..<count).map { UInt8($0 + 1) }
      #expect(equal(bytes, bytes))
      for place in 0..<count {
        var other = bytes
        other[place] ^= 0x80
        #expect(!equal(bytes, other))
      }
    }
    #expect(equal("application/json", "application/json"))
    #expect(!equal("application/json", "application/jsom"))
    #expect(!equal("application/json", "application/jso"))
    #expect(equal("application/", "application/"))
    #expect(!equal("application/", "application."))
  }

  @Test func findsTheOnlyByteThatIsNotASCII() {
    for count in 0...20 {
      var bytes = [UInt8](repeating: 0x7F, count: count)
      #expect(isASCII(bytes))
      for place in 0..<count {
        bytes[place] = 0x80
        #expect(!isASCII(bytes))
        bytes[place] = 0
      }
    }
  }
}
