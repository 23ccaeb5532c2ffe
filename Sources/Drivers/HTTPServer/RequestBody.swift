import ByteStreams
import HTTPCodec

/// The content of a request, collected up to a limit.
package struct RequestBody {
  /// The content; only its beginning if `exceedsLimit`.
  package private(set) var bytes: [UInt8] = []
  /// Whether there was more content than the limit allows. What exceeded it was dropped.
  package private(set) var exceedsLimit = false
  /// Most bytes that are kept: the Content-Length, or the limit if that is less or there is none.
  private let most: Int

  package init(_ framing: HTTPRequestHead.Framing, limit: Int) {
    if case .length(let count) = framing { most = min(count, limit) } else { most = limit }
  }

  package mutating func append(_ content: Span<UInt8>) {
    var content = content
    if content.count > most - bytes.count {
      exceedsLimit = true
      content = content.extracting(first: most - bytes.count)
    }
    guard !bytes.isEmpty else {
      bytes = [UInt8](copying: content)
      return
    }
    let count = bytes.count + content.count
    // Doubled, as an array grows by itself, but never beyond what the body can have.
    if count > bytes.capacity { bytes.reserveCapacity(max(count, min(2 * bytes.capacity, most))) }
    unsafe content.withUnsafeBytes { unsafe bytes.append(contentsOf: $0) }
  }

  /// Bytes of memory that the body holds so far. The allocator may add less than a page to a full one, which is not counted: so
  /// `http.pending_body_bytes` can equal `http.body_bytes`.
  package var heldBytes: Int { max(bytes.count, min(bytes.capacity, most)) }
}
