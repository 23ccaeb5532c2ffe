import ByteStreams

/// Walks the segments of a path, decoded: `/v1/sessions/a%2Fb` has `v1`, `sessions`, `a/b`.
///
/// Segments are split before they are decoded, so an escaped slash separates nothing (RFC 3986 §2.2). A trailing slash gives
/// an empty last segment, `//` an empty one between: to a router both are other paths. `.` and `..` mean nothing here.
package struct HTTPPathReader: ~Copyable, ~Escapable {
  private let path: Span<UInt8>
  private var position = 0
  private var range = 0..<0
  private var decoded = ByteQueue()
  private var isDecoded = false

  @_lifetime(copy path)
  package init(_ path: Span<UInt8>) { self.path = path }

  /// The segment, decoded.
  package var segment: Span<UInt8> {
    @_lifetime(borrow self)
    get { isDecoded ? decoded.bytes : path.extracting(range) }
  }

  /// The rest of the path behind this segment, from its slash on, still encoded. Empty after the last.
  package var rest: Span<UInt8> {
    @_lifetime(copy self)
    get { path.extracting(min(position, path.count)..<path.count) }
  }

  /// Goes on to the next segment; false at the end. Throws for a bad escape or bytes that are no UTF-8.
  @_lifetime(self: copy self)
  package mutating func next() throws(HTTPProtocolError) -> Bool {
    guard position < path.count, path[position] == UInt8(ascii: "/") else { return false }
    let start = position &+ 1
    let end = path.firstIndex(of: UInt8(ascii: "/"), from: start) ?? path.count
    position = end
    range = start..<end
    let raw = path.extracting(range)
    isDecoded = PercentDecoder.isNeeded(for: raw, plusIsSpace: false)
    if isDecoded {
      decoded.removeAll()
      guard PercentDecoder.decode(raw, plusIsSpace: false, into: &decoded) else { throw .malformedTarget }
    }
    guard segment.isUTF8() else { throw .malformedTarget }
    return true
  }
}
