import ByteStreams
import Testing

@Suite struct ByteSearchTests {
  /// Words and the bytes after the last whole word are searched differently.
  @Test func findsTheFirstOfAByteAtEveryPlace() {
    // Neighbours of the byte, whose borrow could be taken for it.
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
}
