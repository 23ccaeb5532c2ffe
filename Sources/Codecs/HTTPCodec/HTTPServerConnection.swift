import ByteStreams

/// What has come of a request.
package enum HTTPRequestEvent: Equatable, Sendable {
  /// The head is whole: `request` tells it until the next head begins.
  case head
  /// A piece of content of so many bytes: `content` shows it until the next call.
  case content(Int)
  /// A trailer section that was not empty: `request.trailers` tells it.
  case trailers
  /// The request has ended.
  case end
  /// The client will send nothing more, and nothing is unanswered: close.
  case endOfInput
}

/// One server connection: bytes in, events out; answers in, bytes out. No socket, no clock.
///
///     connection.receive(bytes)
///     while let event = try connection.nextEvent() { … }
///
/// The next request's head is not parsed before the answer to this one has ended, so pipelined requests wait in the input queue;
/// `wantsInput` tells the driver when to let the kernel hold the rest. After an error is thrown, answer it with
/// `beginResponse` if `canAnswer`, and close: `willClose` is true.
@safe
package struct HTTPServerConnection: ~Copyable {
  private enum Body {
    case none
    case length(Int)
    case chunked(ChunkedDecoder)
    case trailers(FieldLineReader)
    /// All of it has been told but `.end`.
    case ended
  }

  let pool: HTTPHeadPool
  private var head: UnsafeMutablePointer<HTTPRequestHead>?
  private var input = ByteQueue()
  private var reader = RequestHeadReader()
  private var body = Body.none
  /// Bytes of content at the front of `input` that were told and are dropped at the next call.
  private var told = 0
  private var requests = 0
  private var inputEnded = false

  var state = ConnectionState()
  var output = ResponseFraming.none
  /// Of the request that is answered; kept here because its head may have been given back.
  private(set) var requestIsHEAD = false
  private(set) var requestIsHTTP10 = false
  private var awaitsContinue = false

  /// - Parameter pool: what the connections of one loop share; the limits are its.
  package init(pool: HTTPHeadPool) {
    self.pool = pool
    unsafe head = nil
  }

  package init(limits: HTTPLimits = HTTPLimits()) { self.init(pool: HTTPHeadPool(limits: limits, capacity: 1)) }

  deinit {
    if let head = unsafe head { unsafe pool.give(head) }
  }

  // MARK: What the driver reads

  /// The request, from its `.head` until the next head begins or the storage is released.
  package var request: HTTPRequestHead {
    @_transparent
    unsafeAddress {
      guard let head = unsafe head else { preconditionFailure("no request has been read, or its storage was released") }
      return unsafe UnsafePointer(head)
    }
  }

  /// The bytes of the last `.content`, until the next call that changes the connection.
  package var content: Span<UInt8> {
    @_lifetime(borrow self)
    get { input.bytes.extracting(first: told) }
  }

  /// Whether `request` holds a whole head that may be read, also after an error behind it.
  package private(set) var hasRequest = false

  /// Whether the client waits for `100 Continue`, and nothing has come or been answered yet. Answer with
  /// `writeContinue(into:)` when the content is wanted, or with a final response when it is not.
  package var shouldSendContinue: Bool {
    awaitsContinue && input.isEmpty && state.response == .owed && state.request == .body
  }

  /// Whether the driver should read more: not while more than `pipelinedBytes` wait behind an unanswered request.
  package var wantsInput: Bool {
    !inputEnded
      && (state.request == .idle || state.request == .body
        || state.request == .done && input.count < pool.limits.pipelinedBytes)
  }

  /// Bytes that the driver may read behind a request that has ended and whose response is owed. Zero while a request arrives:
  /// its limits are others.
  package var pipelineRoom: Int {
    inputEnded || state.request != .done ? 0 : max(0, pool.limits.pipelinedBytes - input.count)
  }

  /// Whether this connection ends after the response that is owed or being written.
  package var willClose: Bool { !state.keepsAlive }

  /// Whether it has ended: nothing more is read or written; flush and close.
  package var isClosed: Bool { state.response == .closed }

  /// Whether a response may be begun now: a request waits for it, or a framing error came before one was begun.
  package var canAnswer: Bool { state.response == .owed }

  /// Whether a request has begun to arrive and has not ended: the driver's deadline for slow requests runs.
  package var isReceivingRequest: Bool { state.request == .body || (state.request == .idle && !input.isEmpty) }

  /// Whether nothing is owed in either direction: the idle deadline runs.
  package var isIdle: Bool { state.request == .idle && state.response == .idle && input.isEmpty }

  /// Bytes received and not yet parsed.
  package var unparsedBytes: Int { input.count - told }

  /// Bytes of memory held outside the value itself.
  package var allocatedBytes: Int {
    let owned = if let head = unsafe head { unsafe head.pointee.allocatedBytes } else { 0 }
    return owned + input.allocatedBytes
  }

  // MARK: Input

  /// Takes bytes from the peer. Ends the life of the last `.content`.
  package mutating func receive(_ bytes: Span<UInt8>) { input.append(bytes) }

  /// Offers at least `minimum` bytes of room for the driver to receive into; `body` answers how many it filled.
  package mutating func withWritableBytes(
    minimum: Int, _ body: (UnsafeMutableRawBufferPointer) -> Int
  ) -> Int {
    unsafe input.withWritableBytes(minimum: minimum, body)
  }

  /// The peer will send nothing more.
  package mutating func receiveEndOfInput() { inputEnded = true }

  /// The next thing that happened; nil while more bytes, or the end of the response, are needed.
  ///
  /// Throws once; from then on it answers nil.
  package mutating func nextEvent() throws(HTTPProtocolError) -> HTTPRequestEvent? {
    if told > 0 {
      input.consume(told)
      told = 0
    }
    do throws(HTTPProtocolError) {
      switch state.request {
      case .idle: return try readHead()
      case .body: return try readBody()
      case .done, .failed, .closed: return nil
      }
    } catch {
      fail()
      throw error
    }
  }

  /// The rest of a request that arrives is not waited for any more: nothing further is read, and if `canAnswer`, one answer may
  /// still be written.
  package mutating func abandonRequest() {
    switch state.request {
    case .idle, .body: fail()
    case .done, .failed, .closed: preconditionFailure("no request is arriving")
    }
  }

  private mutating func fail() {
    awaitsContinue = false
    // The answer to a HEAD has no content, even where the rest of its head was wrong or never came.
    if state.request == .idle { requestIsHEAD = unsafe head.map { unsafe $0.pointee.method == .head } ?? false }
    state.apply(.requestFailed)
  }

  private mutating func readHead() throws(HTTPProtocolError) -> HTTPRequestEvent? {
    guard state.response == .idle else { return nil }
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
    if unsafe head == nil { unsafe head = pool.take() }
    guard let head = unsafe head else { return nil }
    hasRequest = false
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
    awaitsContinue = unsafe head.pointee.expectsContinue
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
      guard !input.isEmpty else { return try needMore() }
      let count = min(remaining, input.count)
      body = count == remaining ? .ended : .length(remaining &- count)
      return tell(count)
    case .chunked(var decoder):
      let step = try decoder.step(input.bytes, pool.limits)
      input.consume(step.framing)
      if step.data > 0 {
        body = .chunked(decoder)
        return tell(step.data)
      }
      guard decoder.state == .trailers else {
        body = .chunked(decoder)
        return try needMore()
      }
      return try readTrailers(FieldLineReader())
    case .trailers(let reader): return try readTrailers(reader)
    }
  }

  private mutating func readTrailers(_ start: FieldLineReader) throws(HTTPProtocolError) -> HTTPRequestEvent? {
    guard let head = unsafe head else { preconditionFailure("the storage of a request was released while it came") }
    var reader = start
    let ended = unsafe try reader.readTrailers(input.bytes, into: &head.pointee.trailers, pool.limits)
    guard ended else {
      body = .trailers(reader)
      return try needMore()
    }
    unsafe head.pointee.trailers.section.append(input.bytes.extracting(first: reader.position))
    input.consume(reader.position)
    body = .ended
    awaitsContinue = false
    return unsafe head.pointee.trailers.isEmpty ? end() : .trailers
  }

  private mutating func tell(_ count: Int) -> HTTPRequestEvent {
    awaitsContinue = false
    told = count
    return .content(count)
  }

  private mutating func end() -> HTTPRequestEvent {
    body = .none
    state.apply(.requestEnd)
    return .end
  }

  private func needMore() throws(HTTPProtocolError) -> HTTPRequestEvent? {
    if inputEnded { throw .truncatedMessage }
    return nil
  }

  // MARK: Memory

  /// Gives back what is not needed while the connection waits: the input buffer when it is empty, and the request's storage
  /// unless the request is still arriving. Copy out of `request` first what the answer needs.
  package mutating func releaseStorageIfIdle() {
    guard told == 0, input.isEmpty else { return }
    input.releaseStorage()
    guard state.request != .body, let head = unsafe head else { return }
    unsafe pool.give(head)
    unsafe self.head = nil
    hasRequest = false
  }

  /// The `100 Continue` has been written, or a final answer makes it needless.
  mutating func settleContinue() -> Bool {
    let awaited = awaitsContinue
    awaitsContinue = false
    return awaited
  }
}

extension FieldLineReader {
  /// Reads what has come of a trailer section (RFC 9112 §7.1.2); true at its end.
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
        // Behind the section of a pipelining client other requests may wait; a section that is whole has returned. A CR
        // alone begins the empty line behind the section, which is none of it.
        let isAtEnd = section.count == position &+ 1 && section[position] == 0x0D
        guard isAtEnd || size <= limits.trailerBytes else { throw .trailersTooLarge(limit: limits.trailerBytes) }
        return false
      }
    }
  }
}
