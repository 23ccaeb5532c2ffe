/// Percent-encodes every byte except unreserved characters (RFC 3986 §2.1).
package enum PercentEncoder {
  package static func encode(_ bytes: Span<UInt8>) -> String {
    let digits = Array("0123456789ABCDEF".utf8)
    var result: [UInt8] = []
    for index in bytes.indices {
      let byte = bytes[index]
      if ASCII.isUnreserved(byte) {
        result.append(byte)
      } else {
        result += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: result, as: UTF8.self)
  }
}
