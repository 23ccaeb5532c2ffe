import ByteStreams

/// Reads the response to a request that this program has sent: its head and its content (RFC 9112 §6.3).
///
/// If there is a limit for the content (`keptLimit`), the content is kept, and larger content is an error. If there is
/// no such limit, the content is discarded. After `contentLimit` discarded bytes, the rest is not read, and the
/// connection cannot be reused. After an error the reader must not be used. It cannot be used for HEAD, whose response
/// has no content whatever its fields say.
///
///     try reader.receive(&input)
///     if reader.isComplete { … reader.status … reader.allowsReuse … }
package struct HTTPResponseReader: ~Copyable {
  /// Maximum bytes of discarded content. The limit is enough for an error page. To read more content would cost more
  /// than to open a new connection.
  package static var contentLimit: Int { 64 * 1024 }

  /// How the end of the content is found.
  private enum Content {
    case head
    case length(Int)
    case chunked(ChunkedDecoder)
    case trailers
    case endOfInput
    case complete
  }

  private let limits: HTTPLimits
  private var decoder: HTTPResponseHeadDecoder
  private var content = Content.head
  private var trailers = FieldLineReader()
  private var trailerFields = HTTPFields()
  /// Bytes of all interim responses. All interim responses together are limited like one head, since a server could
  /// send them endlessly.
  private var interimBytes = 0
  private var contentBytes = 0
  private var kept = ByteQueue()
  /// Maximum bytes of the content; nil if it is discarded.
  private let keptLimit: Int?
  private var keepsOpen = true

  /// Whether no byte of the response has arrived. If so, the server may not have received the request.
  package private(set) var isEmpty = true

  /// - Parameter keptLimit: the maximum size of the content, which is kept; nil to discard the content.
  package init(limits: HTTPLimits = HTTPLimits(), keepingContentUpTo keptLimit: Int? = nil) {
    self.keptLimit = keptLimit
    var limits = limits
    // The limit for the bodies of requests is removed, since the reader has limits of its own.
    limits.bodyBytes = .max
    self.limits = limits
    decoder = HTTPResponseHeadDecoder(limits: limits)
  }

  /// Whether the reader will read no more bytes of the response.
  package var isComplete: Bool { if case .complete = content { true } else { false } }

  /// The status code of the final response. Valid once `isComplete`.
  package var status: Int { Int(decoder.status.rawValue) }

  /// The first value of a field; nil if there is none. Valid once `isComplete`.
  package func field(_ name: HTTPFieldName) -> String? { decoder.fields.first(name)?.text() }

  /// Bytes of the content that are kept so far.
  package var keptBytes: Int { kept.count }

  /// The content as received so far, without its framing. Empty if it is not kept.
  package func copyContent() -> [UInt8] { kept.copyBytes() }

  /// The lines of the end-to-end fields (`HTTPFields.appendEndToEnd`). Valid once `isComplete`.
  package func copyEndToEndFields(except isExcluded: (HTTPFieldName) -> Bool) -> [UInt8] {
    var lines = ByteQueue()
    decoder.fields.appendEndToEnd(to: &lines, except: isExcluded)
    return lines.copyBytes()
  }

  /// Whether another request can be sent on the connection (RFC 9112 §9.3). Valid once `isComplete`.
  package var allowsReuse: Bool { keepsOpen }

  /// Reads the received bytes. Bytes after the response stay in `input`. They are not a response to a request, so they
  /// prevent the reuse of the connection.
  package mutating func receive(_ input: inout ByteQueue) throws(HTTPProtocolError) {
    if !input.isEmpty { isEmpty = false }
    while true {
      switch content {
      case .head:
        guard try decoder.take(from: &input) else { return }
        content = try contentAfterHead()
      case .length(let remaining):
        let count = min(remaining, input.count)
        try take(count, of: &input)
        guard !isComplete else { return }
        content = count == remaining ? .complete : .length(remaining - count)
        if count < remaining { return }
      case .chunked(var chunks):
        let step = try chunks.step(input.bytes, limits)
        input.consume(step.framing)
        content = chunks.isComplete ? .trailers : .chunked(chunks)
        try take(step.data, of: &input)
        if step.data == 0, !chunks.isComplete { return }
      case .trailers:
        guard try trailers.readTrailers(input.bytes, into: &trailerFields, limits) else { return }
        input.consume(trailers.position)
        content = .complete
      case .endOfInput:
        try take(input.count, of: &input)
        return
      case .complete:
        if !input.isEmpty { keepsOpen = false }
        return
      }
    }
  }

  /// Records that the connection has ended. Throws if the response is incomplete.
  package mutating func receiveEndOfInput() throws(HTTPProtocolError) {
    switch content {
    case .complete: break
    case .endOfInput: content = .complete
    case .head, .length, .chunked, .trailers: throw .truncatedMessage
    }
    keepsOpen = false
  }

  private mutating func take(_ count: Int, of input: inout ByteQueue) throws(HTTPProtocolError) {
    if let keptLimit {
      guard count <= keptLimit - kept.count else { throw .contentTooLarge(limit: keptLimit) }
      kept.append(input.bytes.extracting(first: count))
      input.consume(count)
      return
    }
    input.consume(count)
    contentBytes += count
    guard contentBytes > Self.contentLimit else { return }
    content = .complete
    keepsOpen = false
  }

  private mutating func contentAfterHead() throws(HTTPProtocolError) -> Content {
    if decoder.status.isInterim, decoder.status != .switchingProtocols {
      let size = decoder.head.count
      interimBytes += size
      guard interimBytes <= limits.headBytes else { throw .headTooLarge(limit: limits.headBytes) }
      decoder.begin()
      return .head
    }
    keepsOpen = !decoder.isHTTP10 && !decoder.fields.list(.connection, contains: "close")
    // The request has offered no other protocol, so the meaning of the bytes that follow is unknown.
    if decoder.status == .switchingProtocols { keepsOpen = false }
    if decoder.status.forbidsContent { return .complete }
    if decoder.fields.contains(.transferEncoding) {
      if decoder.fields.contains(.contentLength) { throw .contentLengthWithTransferEncoding }
      if decoder.isHTTP10 { throw .transferEncodingInHTTP10 }
      // The request has no TE field, so only `chunked` is allowed (RFC 9112 §7.4).
      try decoder.fields.requireChunked()
      return .chunked(ChunkedDecoder())
    }
    guard let length = try contentLength() else {
      keepsOpen = false
      return .endOfInput
    }
    if let keptLimit, length > keptLimit { throw .contentTooLarge(limit: keptLimit) }
    guard keptLimit != nil || length <= Self.contentLimit else {
      keepsOpen = false
      return .complete
    }
    return length == 0 ? .complete : .length(length)
  }

  /// The value of Content-Length, at most `Int.max`; nil if the content ends with the connection.
  private func contentLength() throws(HTTPProtocolError) -> Int? {
    guard let value = decoder.fields.first(.contentLength) else { return nil }
    if decoder.fields.isRepeated(.contentLength) { throw .repeatedContentLength }
    guard !value.isEmpty, value.isAllDigits() else { throw .malformedContentLength }
    return value.withoutLeadingZeros().decimalValue() ?? .max
  }
}
