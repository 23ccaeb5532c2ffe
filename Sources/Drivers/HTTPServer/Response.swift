import ByteStreams
import HTTPCodec
import Logging
import Reactor

/// One response, as an application writes it. An event loop uses the same value for response after response.
///
/// The server adds what depends on the connection: the status line, Date, Connection and the framing of the content.
package struct Response: ~Copyable {
  package var status = HTTPStatus.ok
  /// Header fields, each with its line break.
  package var fields = ByteQueue()
  package var content = ResponseContent()
  /// In place of all the above.
  package var prepared: PreparedResponse?
  /// What the log says of the request if it was refused; the server adds the method, the path and the client.
  package var refusal: [LogField] = []

  package init() {}

  /// Makes it an empty 200. Its memory is kept.
  package mutating func reset() {
    status = .ok
    fields.removeAll()
    content.removeAll()
    prepared = nil
    if !refusal.isEmpty { refusal = [] }
  }

  func writeFields(into output: inout ByteQueue) { output.append(fields.bytes) }
}

/// The content of a response: text, and shared bytes that are not copied.
package struct ResponseContent: ~Copyable {
  private enum Piece {
    /// The next so many bytes of `text`.
    case text(Int)
    case shared(SharedSlice)
  }

  /// To be appended to. Nothing else may be done to it.
  package var text = ByteQueue()
  private var textInPieces = 0
  private var pieces: [Piece] = []
  private var sharedCount = 0

  package init() {}

  package var count: Int { text.count &+ sharedCount }
  package var isEmpty: Bool { count == 0 }

  package mutating func append(_ slice: SharedSlice) {
    let open = text.count &- textInPieces
    if open > 0 {
      pieces.append(.text(open))
      textInPieces &+= open
    }
    pieces.append(.shared(slice))
    sharedCount &+= slice.count
  }

  package mutating func removeAll() {
    text.removeAll()
    textInPieces = 0
    pieces.removeAll(keepingCapacity: true)
    sharedCount = 0
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
      case .shared(let slice):
        output.append(slice)
      }
    }
    output.withText { $0.append(text.bytes.extracting(offset..<text.count)) }
  }

  /// Everything in one piece: for tests, and for a response that is kept.
  package func copyBytes() -> [UInt8] {
    var whole = ByteQueue(capacity: count)
    var offset = 0
    for piece in pieces {
      switch piece {
      case .text(let count):
        whole.append(text.bytes.extracting(offset..<offset &+ count))
        offset &+= count
      case .shared(let slice):
        whole.append(slice.bytes)
      }
    }
    whole.append(text.bytes.extracting(offset..<text.count))
    return whole.copyBytes()
  }
}

/// A response that many requests get: the server sends them the same memory, from the status line to the last byte.
///
/// Used on one event loop.
package final class PreparedResponse {
  package let status: HTTPStatus
  package let fields: SharedBytes
  package let content: SharedBytes
  /// The whole response, for a connection that stays open, with the Date of `second`.
  private var rendered: (bytes: SharedBytes, second: Int64)?

  /// Keeps a copy of what `response` has.
  package init(copying response: borrowing Response) {
    status = response.status
    fields = SharedBytes(copying: response.fields.bytes)
    content = SharedBytes(response.content.copyBytes())
  }

  /// The whole response with the Date of `second` (of UNIX time), if it was rendered for that second.
  func rendering(at second: Int64) -> SharedBytes? {
    guard let rendered, rendered.second == second else { return nil }
    return rendered.bytes
  }

  /// `output` holds the whole response and nothing else.
  func keep(_ output: borrowing OutputQueue, at second: Int64) { rendered = (output.copy(), second) }
}
