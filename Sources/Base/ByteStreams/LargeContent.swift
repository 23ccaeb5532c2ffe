/// Large content for an output. It is appended in parts, whenever the output has room. Therefore no turn of a loop
/// copies all of the content, and the output needs no memory for all of it.
package protocol LargeContent: AnyObject {
  /// The number of bytes that were not appended yet.
  var count: Int { get }

  /// Appends the next bytes, at most `limit`.
  func append(atMost limit: Int, to output: inout ByteQueue)
}

/// Large content that is appended unchanged.
package final class LargeSlice: LargeContent {
  /// Content of at least this many bytes is large. A copy of smaller content takes at most 0.3 ms.
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
