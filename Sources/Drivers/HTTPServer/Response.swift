import ByteStreams
import HTTPCodec
import Logging
import Reactor

/// One response, written by an application. Each event loop reuses one value for all responses.
///
/// The server adds the parts that depend on the connection: the status line, Date, Connection and the framing of the
/// content.
package struct Response: ~Copyable {
  package var status = HTTPStatus.ok
  /// Header fields, each ending with CRLF.
  package var fields = ByteQueue()
  package var content = ResponseContent()
  /// Header fields, each ending with CRLF, that are added even to a prepared response.
  package var additionalFields = ByteQueue()
  /// If set, it replaces `status`, `fields` and `content`.
  package var prepared: PreparedResponse?
  /// Log fields for a refused request. The server adds the id, the method, the path and the client.
  package var refusal: [LogField] = []
  /// The request's id, which is written into the response and the log. It is the `X-Request-Id` of the client if this
  /// field is valid; the server copies it. If not, the application makes an id, but only for a response that contains
  /// an id. `reset()` keeps the id.
  package var requestID = ByteQueue()

  /// Whether a stream ends without a last chunk, by the end of its connection.
  package var endsWithConnection = false

  /// Whether the connection is closed after the response.
  package var closesConnection = false

  /// A hash of the principal that sent the request; 0 without credentials. As long as the client has not read the
  /// response, the bytes of the response are counted for this principal.
  package var principal: UInt64 = 0

  package init() {}

  /// Resets the response to an empty response with status 200. Keeps the allocated memory.
  package mutating func reset() {
    status = .ok
    fields.removeAll()
    content.removeAll()
    additionalFields.removeAll()
    prepared = nil
    if !refusal.isEmpty { refusal = [] }
    endsWithConnection = false
    closesConnection = false
    principal = 0
  }

  func writeFields(into output: inout ByteQueue) {
    output.append(fields.bytes)
    output.append(additionalFields.bytes)
  }

  /// Writes the whole response for the request pending in `http`, and resets `self`. This is one call, so that the
  /// state of the worker is accessed once and not for each part of the response.
  mutating func move(to output: inout OutputQueue, with http: inout HTTPServerConnection, date: ByteString) {
    output.appendResponse(
      status, fields.bytes, additionalFields.bytes, contentCount: content.count, with: &http, date: date
    ) {
      content.write(into: &$0)
    }
    reset()
  }

  /// Writes `prepared` and `additionalFields` for the request pending in `http`.
  func write(
    _ prepared: PreparedResponse, to output: inout OutputQueue, with http: inout HTTPServerConnection, date: ByteString
  ) {
    let (fields, content) = (prepared.fields, prepared.content)
    output.appendResponse(
      prepared.status, fields.bytes, additionalFields.bytes, contentCount: content.count, with: &http, date: date
    ) { $0.append(ByteSlice(content)) }
  }
}

extension OutputQueue {
  /// Appends a whole response to the request pending in `http`.
  ///
  /// - Parameters:
  ///   - fields: header fields, each ending with CRLF.
  ///   - more: further header fields.
  ///   - writeContent: appends `contentCount` bytes. Not called if no content is sent.
  @inline(__always)
  mutating func appendResponse(
    _ status: HTTPStatus, _ fields: Span<UInt8>, _ more: Span<UInt8>, contentCount: Int,
    with http: inout HTTPServerConnection, date: ByteString, _ writeContent: (inout OutputQueue) -> Void
  ) {
    var hasContent = false
    withText { text in
      http.beginResponse(
        status, status.forbidsContent ? .none : .length(contentCount), date: date.bytes, into: &text)
      text.append(fields)
      if !more.isEmpty { text.append(more) }
      text.endFields()
      hasContent = http.beginContent(contentCount, into: &text)
    }
    if hasContent { writeContent(&self) }
    withText { text in
      if hasContent { http.endContent(into: &text) }
      http.finishResponse(into: &text)
    }
  }
}

/// The content of a response: text interleaved with slices that are not copied.
package struct ResponseContent: ~Copyable {
  private enum Piece {
    /// The next `count` bytes of `text`.
    case text(Int)
    case slice(ByteSlice)
  }

  /// The text, to which callers may only append.
  package var text = ByteQueue()
  private var textInPieces = 0
  private var pieces: [Piece] = []
  private var sliceCount = 0
  /// Maximum memory, in bytes, that `text` keeps. Only an exceptional response needs more memory, which is released
  /// with the response.
  private static var retainedBytes: Int { 256 << 10 }

  package init() {}

  /// Size of the memory for text.
  var allocatedBytes: Int { text.allocatedBytes }

  package var count: Int { text.count &+ sliceCount }
  package var isEmpty: Bool { count == 0 }

  package mutating func append(_ slice: ByteSlice) {
    let open = text.count &- textInPieces
    if open > 0 {
      pieces.append(.text(open))
      textInPieces &+= open
    }
    pieces.append(.slice(slice))
    sliceCount &+= slice.count
  }

  package mutating func removeAll() {
    text.removeAll()
    if text.allocatedBytes > Self.retainedBytes { text.releaseStorage() }
    textInPieces = 0
    pieces.removeAll(keepingCapacity: true)
    sliceCount = 0
  }

  /// Appends everything to `output`.
  func write(into output: inout OutputQueue) {
    guard !pieces.isEmpty else {
      output.withText { $0.append(text.bytes) }
      return
    }
    var offset = 0
    for piece in pieces {
      switch piece {
      case .text(let count):
        output.withText { $0.append(text.bytes.extracting(offset..<offset &+ count)) }
        offset &+= count
      case .slice(let slice):
        output.append(slice)
      }
    }
    output.withText { $0.append(text.bytes.extracting(offset..<text.count)) }
  }

  /// Returns a contiguous copy of the content.
  package func copyBytes() -> [UInt8] {
    var whole = ByteQueue(capacity: count)
    forEachPiece { whole.append($0) }
    return whole.copyBytes()
  }

  /// Passes the content to `body`, in pieces and in order.
  package func forEachPiece(_ body: (Span<UInt8>) -> Void) {
    var offset = 0
    for piece in pieces {
      switch piece {
      case .text(let count):
        body(text.bytes.extracting(offset..<offset &+ count))
        offset &+= count
      case .slice(let slice):
        body(slice.bytes)
      }
    }
    body(text.bytes.extracting(offset..<text.count))
  }
}

/// A response that many requests get. It is sent from the same memory for all of them, including the status line and
/// fields.
package final class PreparedResponse {
  package let status: HTTPStatus
  package let fields: ByteString
  package let content: ByteString
  /// The whole response for a persistent connection, with the Date of `second`.
  private var rendered: (bytes: ByteString, second: Int64)?

  /// Copies the status, fields and content of `response`.
  package init(copying response: borrowing Response) {
    status = response.status
    fields = ByteString(copying: response.fields.bytes)
    content = ByteString(response.content.copyBytes())
  }

  /// Returns the whole response with the Date of `second` (UNIX time), if it was rendered for that second.
  func rendering(at second: Int64) -> ByteString? {
    guard let rendered, rendered.second == second else { return nil }
    return rendered.bytes
  }

  /// Keeps a copy of `output`, which must contain exactly this response.
  func keep(_ output: borrowing OutputQueue, at second: Int64) { rendered = (output.copy(), second) }
}
