import ByteStreams

/// The beginning of the body of a response that refused an upgrade or a tunnel. It often contains a reason for people
/// to read.
///
/// At most `limit` bytes are kept. A body that reaches the limit is treated as complete. The driver sets the timeout.
package struct RefusalBody: ~Copyable {
  /// How the end of the body is found (RFC 9112 §6.3).
  private enum Framing {
    case length(Int)
    case chunked(ChunkedDecoder)
    case endOfInput
  }

  private let limit: Int
  private var framing: Framing
  private var kept = ByteQueue()

  /// Whether no more bytes are needed.
  package private(set) var isComplete = false

  /// `limit` is in bytes. 4 KiB is enough for a useful error page.
  package init(of refusal: HTTPRefusal, limit: Int = 4096) {
    self.limit = limit
    if let coding = refusal.field("transfer-encoding") {
      framing = coding.lowercased().hasSuffix("chunked") ? .chunked(ChunkedDecoder()) : .endOfInput
    } else if let length = refusal.field("content-length").flatMap({ Int($0) }), length >= 0 {
      framing = .length(length)
      isComplete = length == 0
    } else {
      framing = .endOfInput
    }
    if refusal.status == 204 || refusal.status == 304 { isComplete = true }
  }

  /// The bytes kept so far.
  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    get { kept.bytes }
  }

  /// Consumes all of `input`, and keeps the bytes of the body up to the limit.
  package mutating func receive(_ input: inout ByteQueue) {
    if !isComplete { read(input) }
    input.removeAll()
  }

  package mutating func receiveEndOfInput() { isComplete = true }

  private mutating func read(_ input: borrowing ByteQueue) {
    switch framing {
    case .endOfInput:
      keep(input.bytes)
    case .length(let length):
      let count = min(length, input.count)
      keep(input.bytes.extracting(first: count))
      framing = .length(length - count)
      if count == length { isComplete = true }
    case .chunked(var decoder):
      readChunks(input.bytes, &decoder)
      framing = .chunked(decoder)
    }
  }

  private mutating func readChunks(_ input: Span<UInt8>, _ decoder: inout ChunkedDecoder) {
    var offset = 0
    while offset < input.count, !isComplete {
      // The response is a refusal even if its framing is invalid. So invalid framing only ends the body.
      guard let step = try? decoder.step(input.extracting(offset..<input.count), HTTPLimits()) else {
        isComplete = true
        return
      }
      offset += step.framing
      keep(input.extracting(offset..<offset + step.data))
      offset += step.data
      if decoder.isComplete { isComplete = true }
    }
  }

  private mutating func keep(_ bytes: Span<UInt8>) {
    kept.append(bytes.extracting(first: min(bytes.count, limit - kept.count)))
    if kept.count == limit { isComplete = true }
  }
}
