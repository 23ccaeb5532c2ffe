/// Base64 with the standard alphabet and padding (RFC 4648 §4).
package enum Base64 {
  private static let alphabet: StaticString = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

  /// Characters that `count` bytes take.
  package static func encodedCount(_ count: Int) -> Int { (count + 2) / 3 * 4 }

  package static func encode(_ bytes: Span<UInt8>, into output: inout ByteQueue) {
    guard !bytes.isEmpty else { return }
    let size = encodedCount(bytes.count)
    _ = unsafe output.withWritableBytes(minimum: size) { room in
      let letters = unsafe alphabet.utf8Start
      var write = 0
      var read = 0
      while read < bytes.count {
        let rest = bytes.count &- read
        let first = UInt32(bytes[read]) << 16
        let second = rest > 1 ? UInt32(bytes[read &+ 1]) << 8 : 0
        let third = rest > 2 ? UInt32(bytes[read &+ 2]) : 0
        let group = first | second | third
        unsafe room[write] = letters[Int(group >> 18)]
        unsafe room[write &+ 1] = letters[Int(group >> 12 & 63)]
        unsafe room[write &+ 2] = rest > 1 ? letters[Int(group >> 6 & 63)] : UInt8(ascii: "=")
        unsafe room[write &+ 3] = rest > 2 ? letters[Int(group & 63)] : UInt8(ascii: "=")
        write &+= 4
        read &+= 3
      }
      return size
    }
  }

  package static func encode(_ bytes: Span<UInt8>) -> String {
    var output = ByteQueue()
    encode(bytes, into: &output)
    return output.bytes.text()
  }
}
