import ByteStreams

/// An event while a request is read.
package enum HTTPRequestEvent: Equatable, Sendable {
  /// The head is complete and available as `request` until the next head begins.
  case head
  /// This many bytes of content arrived, available as `content` until the next call.
  case content(Int)
  /// A non-empty trailer section arrived, available as `request.trailers`.
  case trailers
  /// The request has ended.
  case end
  /// The client has closed its side, and no response is pending. The driver must close the connection.
  case endOfInput
}

/// The protocol of one server connection. It turns received bytes into events, and responses into bytes to send. It has
/// no socket and no clock.
///
///     connection.receive(bytes)
///     while let event = try connection.nextEvent() { … }
///
/// The next request's head is not parsed before the current response has ended, so pipelined requests stay in the input
/// queue. While `shouldReadInput` is false, the driver must leave further bytes in the kernel. After an error, the
/// driver sends a response with `beginResponse` if `canRespond`, and closes the connection, since `willClose` is true.
@safe
@usableFromInline
package struct HTTPServerConnection: ~Copyable {
  private enum Body {
    case none
    case length(Int)
    case chunked(ChunkedDecoder)
    case trailers(FieldLineReader)
    /// All events of the request except `.end` were reported.
    case ended
  }

  let pool: HTTPHeadPool
  private var head: UnsafeMutablePointer<HTTPRequestHead>?
  @usableFromInline var input = ByteQueue()
  private var reader = RequestHeadReader()
  private var body = Body.none
  /// Bytes of content at the front of `input` that were reported. They are dropped at the next call.
  private var reportedBytes = 0
  private var requests = 0
  private var inputEnded = false

  @usableFromInline var state = ConnectionState()
  var output = ResponseFraming.none
  /// Whether the request of the current response is HEAD. It is stored here because the head of the request may have
  /// been released.
  @usableFromInline private(set) var requestIsHEAD = false
  @usableFromInline private(set) var requestIsHTTP10 = false
  @usableFromInline var isAwaitingContinue = false
  /// Whether the request that ended last was the client's last request.
  @usableFromInline var isLastRequest = false

  /// - Parameter pool: used by all connections of one loop. It also contains the limits.
  package init(pool: HTTPHeadPool) {
    self.pool = pool
    unsafe head = nil
  }

  package init(limits: HTTPLimits = HTTPLimits()) { self.init(pool: HTTPHeadPool(limits: limits, capacity: 1)) }

  deinit {
    if let head = unsafe head { unsafe pool.release(head) }
  }

  // MARK: State for the driver

  /// The request, from its `.head` event until the next head begins or the storage is released.
  package var request: HTTPRequestHead {
    @_transparent
    unsafeAddress {
      guard let head = unsafe head else { preconditionFailure("no request has been read, or its storage was released") }
      return unsafe UnsafePointer(head)
    }
  }

  /// The bytes of the last `.content` event, until the next mutating call.
  package var content: Span<UInt8> {
    @_lifetime(borrow self)
    get { input.bytes.extracting(first: reportedBytes) }
  }

  /// Whether `request` is a complete head. Stays true after an error in the rest of the request.
  package private(set) var hasRequest = false

  /// Whether the client waits for `100 Continue`, no content has arrived and no response was begun. The driver must
  /// call `writeContinue(into:)` in order to receive the content, or send a final response in order to decline it.
  @inlinable package var shouldSendContinue: Bool {
    isAwaitingContinue && input.isEmpty && state.response == .pending && state.request == .body
  }

  /// Whether the driver should read more. False while `pipelinedBytes` or more are unparsed after a request whose
  /// response is pending.
  package var shouldReadInput: Bool {
    !inputEnded
      && (state.request == .idle || state.request == .body
        || state.request == .done && input.count < pool.limits.pipelinedBytes)
  }

  /// How many bytes the driver may read after a request that has ended and whose response is pending. Zero while a
  /// request arrives, since other limits apply to that request.
  package var remainingPipelineBytes: Int {
    inputEnded || state.request != .done ? 0 : max(0, pool.limits.pipelinedBytes - input.count)
  }

  /// Whether the connection closes after the response that is pending or being written.
  @inlinable package var willClose: Bool { !state.keepsAlive }

  /// Whether the connection has ended. No more input is read, and no more responses are written. The driver must flush
  /// and close.
  @inlinable package var isClosed: Bool { state.response == .closed }

  /// Whether the client will send no more bytes: it has sent its last request completely, with `Connection: close` (RFC
  /// 9112 §9.6), and no bytes have followed the request. Always false for HTTP/1.0, whose clients may send an extra
  /// CRLF after a POST (§2.2).
  @inlinable package var expectsNoInput: Bool { isLastRequest && input.isEmpty }

  /// Whether a response may begin now, because a request needs a response, or because an error has occurred before a
  /// response was begun.
  @inlinable package var canRespond: Bool { state.response == .pending }

  /// Whether a request has begun to arrive and has not ended. If so, the driver must apply its timeout for slow
  /// requests.
  @inlinable package var isReceivingRequest: Bool {
    state.request == .body || (state.request == .idle && !input.isEmpty)
  }

  /// Whether no request is arriving and no response is pending. If so, the driver must apply its idle timeout.
  @inlinable package var isIdle: Bool { state.request == .idle && state.response == .idle && input.isEmpty }

  /// Bytes received but not yet parsed.
  package var unparsedBytes: Int { input.count - reportedBytes }

  /// Allocated memory in bytes, without the value itself.
  package var allocatedBytes: Int {
    let owned = if let head = unsafe head { unsafe head.pointee.allocatedBytes } else { 0 }
    return owned + input.allocatedBytes
  }

  // MARK: Input

  /// Appends received bytes. Invalidates the last `content`.
  package mutating func receive(_ bytes: Span<UInt8>) {
    if input.allocatedBytes == 0 { pool.lendInput(to: &input) }
    input.append(bytes)
  }

  /// Passes at least `minimum` bytes of buffer to `body`, which receives into it and returns how many bytes it wrote.
  package mutating func withWritableBytes(
    minimum: Int, _ body: (UnsafeMutableRawBufferPointer) -> Int
  ) -> Int {
    unsafe input.withWritableBytes(minimum: minimum, body)
  }

  /// Records that the peer will send no more bytes.
  package mutating func receiveEndOfInput() { inputEnded = true }

  /// Returns the next event, or nil if more bytes or the end of the response are needed.
  ///
  /// Throws at most once, and then returns nil.
  package mutating func nextEvent() throws(HTTPProtocolError) -> HTTPRequestEvent? {
    if reportedBytes > 0 {
      input.consume(reportedBytes)
      reportedBytes = 0
    }
    do throws(HTTPProtocolError) {
      switch state.request {
      case .idle: return try readHead()
      // If the head was released, the rest of the request is not read (`isRestUnread`).
      case .body: return unsafe head == nil ? nil : try readBody()
      case .done, .failed, .closed: return nil
      }
    } catch {
      fail()
      throw error
    }
  }

  /// Abandons the request that is arriving. No more input is read. One response may still be sent if `canRespond`.
  package mutating func abandonRequest() {
    switch state.request {
    case .idle, .body: fail()
    case .done, .failed, .closed: preconditionFailure("no request is arriving")
    }
  }

  private mutating func fail() {
    isAwaitingContinue = false
    // A response to HEAD has no content, even if the rest of the head was invalid or never arrived.
    if state.request == .idle { requestIsHEAD = unsafe head.map { unsafe $0.pointee.method == .head } ?? false }
    state.apply(.requestFailed)
  }

  private mutating func readHead() throws(HTTPProtocolError) -> HTTPRequestEvent? {
    guard state.response == .idle else { return nil }
    hasRequest = false
    let limits = pool.limits
    var reader = self.reader
    if !reader.hasRequestLine, let head = unsafe head { unsafe head.pointee.method = .other }
    while true {
      let empty = try reader.leadingEmptyLine(input.bytes, limits)
      if empty == 0 { break }
      input.consume(empty)
    }
    self.reader = reader
    guard !input.isEmpty else { return endOfInput() }
    if unsafe head == nil { unsafe head = pool.acquire() }
    guard let head = unsafe head else { return nil }
    guard let size = unsafe try reader.read(input.bytes, into: &head.pointee, limits) else {
      self.reader = reader
      guard inputEnded else { return nil }
      if input.count == 1, input.bytes[0] == 0x0D { return endOfInput() }
      throw .truncatedMessage
    }
    self.reader = RequestHeadReader()
    unsafe head.pointee.fields.section.append(input.bytes.extracting(first: size))
    input.consume(size)
    hasRequest = true
    requestIsHEAD = unsafe head.pointee.method == .head
    requestIsHTTP10 = unsafe head.pointee.isHTTP10
    try unsafe head.pointee.readFields(limits)
    begin(framing: unsafe head.pointee.framing)
    isAwaitingContinue = unsafe head.pointee.expectsContinue
    requests &+= 1
    if unsafe !head.pointee.keepsAlive || requests >= limits.requestsPerConnection { state.keepsAlive = false }
    return .head
  }

  private mutating func begin(framing: HTTPRequestHead.Framing) {
    state.apply(.requestHead)
    output = .none
    switch framing {
    case .none: body = .ended
    case .length(let count): body = .length(count)
    case .chunked: body = .chunked(ChunkedDecoder())
    }
  }

  private mutating func endOfInput() -> HTTPRequestEvent? {
    guard inputEnded else { return nil }
    state.apply(.endOfInput)
    return .endOfInput
  }

  private mutating func readBody() throws(HTTPProtocolError) -> HTTPRequestEvent? {
    switch body {
    case .none: preconditionFailure("no request is being read")
    case .ended: return end()
    case .length(let remaining):
      guard !input.isEmpty else { return try requireMoreInput() }
      let count = min(remaining, input.count)
      body = count == remaining ? .ended : .length(remaining &- count)
      return reportContent(count)
    case .chunked(var decoder):
      let step = try decoder.step(input.bytes, pool.limits)
      input.consume(step.framing)
      if step.data > 0 {
        body = .chunked(decoder)
        return reportContent(step.data)
      }
      guard decoder.state == .trailers else {
        body = .chunked(decoder)
        return try requireMoreInput()
      }
      return try readTrailers(FieldLineReader())
    case .trailers(let reader): return try readTrailers(reader)
    }
  }

  private mutating func readTrailers(_ start: FieldLineReader) throws(HTTPProtocolError) -> HTTPRequestEvent? {
    guard let head = unsafe head else { preconditionFailure("the storage of a request was released while it arrived") }
    var reader = start
    let ended = unsafe try reader.readTrailers(input.bytes, into: &head.pointee.trailers, pool.limits)
    guard ended else {
      body = .trailers(reader)
      return try requireMoreInput()
    }
    unsafe head.pointee.trailers.section.append(input.bytes.extracting(first: reader.position))
    input.consume(reader.position)
    body = .ended
    isAwaitingContinue = false
    return unsafe head.pointee.trailers.isEmpty ? end() : .trailers
  }

  private mutating func reportContent(_ count: Int) -> HTTPRequestEvent {
    isAwaitingContinue = false
    reportedBytes = count
    return .content(count)
  }

  private mutating func end() -> HTTPRequestEvent {
    body = .none
    isLastRequest = !requestIsHTTP10 && (unsafe head.map { unsafe !$0.pointee.keepsAlive } ?? false)
    state.apply(.requestEnd)
    return .end
  }

  private func requireMoreInput() throws(HTTPProtocolError) -> HTTPRequestEvent? {
    if inputEnded { throw .truncatedMessage }
    return nil
  }

  // MARK: Memory

  /// Frees the memory that a waiting connection does not need: the unused part of the input buffer, and the request's
  /// storage. Keeps the storage if the rest of an arriving request will still be read. The caller must have copied the
  /// parts of `request` that the response needs.
  package mutating func releaseStorageIfIdle() {
    guard reportedBytes == 0 else { return }
    pool.takeInput(from: &input)
    guard !usesHead, let head = unsafe head else { return }
    unsafe pool.release(head)
    unsafe self.head = nil
    hasRequest = false
  }

  /// Whether the head may still be needed for unparsed input, or for input that arrives while the connection waits.
  private var usesHead: Bool {
    switch state.request {
    case .idle: !input.isEmpty
    // If a response closes the connection, the end of the response also ends a request that is still arriving. The rest
    // of that request is not read, so its head is not needed. For example, a stream may begin while the client waits
    // for `100 Continue`. The connection then does not keep the head for the minutes that the stream lasts.
    case .body: !isRestUnread
    // Input after the request is not parsed before the response has ended.
    case .done: false
    case .failed, .closed: !input.isEmpty
    }
  }

  /// Whether the rest of the request is never read, since the response has begun and closes the connection.
  private var isRestUnread: Bool { state.request == .body && state.response == .body && !state.keepsAlive }

  /// Called when `100 Continue` was written, or when a final response makes it unnecessary. Ends the wait of the
  /// client. Returns whether the client was waiting.
  mutating func endContinueWait() -> Bool {
    let awaited = isAwaitingContinue
    isAwaitingContinue = false
    return awaited
  }
}

extension FieldLineReader {
  /// Reads the trailer section as far as it has arrived (RFC 9112 §7.1.2). Returns true at its end.
  mutating func readTrailers(
    _ section: Span<UInt8>, into trailers: inout HTTPFields, _ limits: HTTPLimits
  ) throws(HTTPProtocolError) -> Bool {
    while true {
      let line = try readLine(of: section, into: &trailers, isFirst: trailers.isEmpty)
      let size = line == .incomplete ? section.count : position
      switch line {
      case .field:
        guard trailers.count <= limits.trailerCount else { throw .tooManyTrailers(limit: limits.trailerCount) }
        guard size <= limits.trailerBytes else { throw .trailersTooLarge(limit: limits.trailerBytes) }
        let name = trailers.lastField
        if name.isForbiddenInTrailers { throw .forbiddenTrailer(name) }
      case .end: return true
      case .incomplete:
        // The section is incomplete, so no byte in `section` belongs to a pipelined request, and the size of `section`
        // is compared with the limit. If only a CR follows the last complete line, the CR begins the empty line after
        // the section, and is not counted.
        let isAtEnd = section.count == position &+ 1 && section[position] == 0x0D
        guard isAtEnd || size <= limits.trailerBytes else { throw .trailersTooLarge(limit: limits.trailerBytes) }
        return false
      }
    }
  }
}
