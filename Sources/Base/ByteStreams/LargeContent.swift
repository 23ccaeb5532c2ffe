/// A large content of an output. It is appended to the output a part at a time, when the output has room. So no turn of
/// a loop copies the whole content, and the output needs no memory of its size.
package protocol LargeContent: AnyObject {
  /// The number of bytes that were not appended yet.
  var count: Int { get }

  /// Appends the next bytes, at most `limit`.
  func append(atMost limit: Int, to output: inout ByteQueue)
}

/// A large content that is appended unchanged.
package final class LargeSlice: LargeContent {
  /// The size in bytes from which a content is large. A smaller content is copied in at most 0.3 ms.
  package static var smallest: Int { 256 << 10 }

  private let slice: ByteSlice
  private var offset = 0

  package init(_ slice: ByteSlice) { self.slice = slice }

  package var count: Int { slice.count - offset }

  package func append(atMost limit: Int, to output: inout ByteQueue) {
    let slice = slice
    let end = offset + min(limit, count)
    output.append(slice.bytes.extracting(offset..<end))
    offset = end
  }
}
