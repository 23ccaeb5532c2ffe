import ByteStreams
import HTTPCodec

/// The content of a request, collected up to a limit.
package struct RequestBody {
  /// The content, truncated if `exceedsLimit`.
  package private(set) var bytes: [UInt8] = []
  /// Whether the content exceeded the limit. The excess was dropped.
  package private(set) var exceedsLimit = false
  /// The work on the content that is done before the request is finished; nil if there is none.
  package var preparation: (any BodyPreparation)?
  /// The size in bytes from which the processing of a body may take longer than a turn should. From this size on, the
  /// server requests a preparation from the application.
  private let smallestLong: Int
  /// Maximum number of bytes kept: the smaller of Content-Length, if present, and the limit.
  private let maximumBytes: Int

  package init(_ framing: HTTPRequestHead.Framing, limit: Int, preparedFrom smallestLong: Int = .max) {
    self.smallestLong = smallestLong
    if case .length(let count) = framing { maximumBytes = min(count, limit) } else { maximumBytes = limit }
  }

  package mutating func append(_ content: Span<UInt8>) {
    var content = content
    if content.count > maximumBytes - bytes.count {
      exceedsLimit = true
      content = content.extracting(first: maximumBytes - bytes.count)
    }
    guard !bytes.isEmpty else {
      bytes = [UInt8](copying: content)
      return
    }
    let count = bytes.count + content.count
    // The capacity doubles, as in any array, but never exceeds the maximum size of the body.
    if count > bytes.capacity { bytes.reserveCapacity(max(count, min(2 * bytes.capacity, maximumBytes))) }
    unsafe content.withUnsafeBytes { unsafe bytes.append(contentsOf: $0) }
  }

  /// Bytes of memory in use. The allocator may add less than a page to a full body. This addition is not counted, so
  /// that `http.pending_body_bytes` can be equal to `http.body_bytes`.
  package var memoryBytes: Int { max(bytes.count, min(bytes.capacity, maximumBytes)) }

  /// Whether processing the content may take long. Content above the limit is refused without processing.
  var mayTakeLong: Bool { bytes.count >= smallestLong && !exceedsLimit }
}
