import ByteStreams

/// The beginning of the body of an answer that refused an upgrade or a tunnel: often it says why in words, and a person should
/// read them.
///
/// No more than `limit` bytes are kept, and nothing is waited for beyond them. How long to wait for those is the driver's to say.
package struct RefusalBody: ~Copyable {
  /// How the body ends (RFC 9112 §6.3).
  private enum Framing {
    case length(Int)
    case chunked(ChunkedDecoder)
    case endOfInput
  }

  private let limit: Int
  private var framing: Framing
  private var kept = ByteQueue()

  /// Whether there is no more to wait for.
  package private(set) var isComplete = false

  /// `limit`: 4 KiB by default, enough for every error page that says anything.
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

  /// What has come of it.
  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    get { kept.bytes }
  }

  /// Takes everything from `input`, keeps what is wanted.
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
      // Bad framing ends what can be read of a page that is refused anyway.
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
