import ByteStreams
import Deflate
import HTTPCodec

extension Span where Element == UInt8 {
  fileprivate func isPrintableASCII() -> Bool {
    for index in indices where self[index] < 0x20 || self[index] > 0x7E { return false }
    return true
  }
}

/// The head of a `POST /v1/messages`. The body is one message, byte for byte, or a batch of one message per line.
struct IncomingMessage {
  enum Form { case text, binary, lines }

  private let form: Form
  private let isCompressed: Bool
  private let limits: Limits
  let timeToLive: TimeSpan?
  let topic: String?

  /// Longest topic, in bytes. RFC 8030 §5.4 allows 32; applications need longer names.
  private static let longestTopic = 128

  /// The limits of a request, from the `http` settings.
  struct Limits {
    /// Maximum size of the body in bytes, also after inflation.
    let bodyBytes: Int
    /// Maximum number of messages in a batch.
    let batchMessages: Int
  }

  init(_ request: borrowing HTTPRequestHead, _ limits: Limits) throws(ProblemError) {
    self.limits = limits
    form = try Self.form(of: request)
    isCompressed = try Self.isCompressed(request)
    timeToLive = try Self.timeToLive(of: request)
    topic = try Self.topic(of: request)
  }

  private static func form(of request: borrowing HTTPRequestHead) throws(ProblemError) -> Form {
    guard let value = request.fields.first(.contentType), !value.isEmpty else { return .binary }
    guard let type = HTTPMediaType(value) else {
      throw ProblemError(
        .unsupportedMediaType,
        "Content-Type '\(value.excerpt())' is malformed: use a media type such as text/plain or application/json")
    }
    if type.is("application", "x-ndjson") { return .lines }
    if type.type.equalsIgnoringCase("multipart") {
      throw ProblemError(
        .unsupportedMediaType,
        "multipart content is not supported: send each part in its own request, or a batch as application/x-ndjson")
    }
    let isText =
      type.type.equalsIgnoringCase("text") || type.is("application", "json")
      || type.is("application", "x-www-form-urlencoded")
    guard isText else { return .binary }
    if let charset = type.parameter("charset"),
      !charset.equalsIgnoringCase("utf-8"), !charset.equalsIgnoringCase("us-ascii"), !charset.equalsIgnoringCase("utf8")
    {
      throw ProblemError(
        .unsupportedMediaType,
        "charset '\(charset.excerpt())' is not supported: send text as UTF-8, or other bytes as application/octet-stream"
      )
    }
    return .text
  }

  private static func isCompressed(_ request: borrowing HTTPRequestHead) throws(ProblemError) -> Bool {
    // RFC 9110 §8.4: a list, in the order in which the codings were applied.
    var compressions = 0
    var isKnown = true
    request.fields.forEachElement(of: .contentEncoding) { coding in
      if coding.equalsIgnoringCase("identity") { return }
      compressions += 1
      isKnown = isKnown && (coding.equalsIgnoringCase("gzip") || coding.equalsIgnoringCase("x-gzip"))
    }
    guard isKnown, compressions <= 1 else {
      throw ProblemError(.unsupportedEncoding, "Content-Encoding is not supported: use gzip, once, or identity")
    }
    return compressions == 1
  }

  private static func timeToLive(of request: borrowing HTTPRequestHead) throws(ProblemError) -> TimeSpan? {
    guard let value = request.fields.first(.ttl) else { return nil }
    guard let seconds = value.deltaSeconds() else {
      throw ProblemError(.invalidParameter, "TTL '\(value.excerpt())' is not valid: use whole seconds, such as TTL: 30")
    }
    return .seconds(Int64(seconds))
  }

  private static func topic(of request: borrowing HTTPRequestHead) throws(ProblemError) -> String? {
    guard let value = request.fields.first(.topic) else { return nil }
    // Other bytes have no agreed meaning in a field (RFC 9110 §5.5).
    guard !value.isEmpty, value.count <= longestTopic, value.isPrintableASCII() else {
      throw ProblemError(
        .invalidParameter, "Topic is not valid: use 1 to \(longestTopic) printable ASCII characters")
    }
    return value.text()
  }

  /// One message to be queued.
  struct Item {
    let payload: SharedBytes
    let kind: MessageKind
  }

  var isBatch: Bool { form == .lines }

  /// Returns the body as one message, validated.
  func item(in bytes: [UInt8]) throws(ProblemError) -> Item {
    let plain = isCompressed ? try inflated(bytes) : bytes
    guard form == .binary || UTF8StreamValidator.isValid(plain.span) else {
      throw ProblemError(
        .invalidText, "a text message must be UTF-8: send other bytes with Content-Type: application/octet-stream")
    }
    return Item(payload: SharedBytes(plain), kind: form == .binary ? .binary : .text)
  }

  /// Returns the messages in the body of a batch, validated.
  func items(in bytes: [UInt8]) throws(ProblemError) -> [Item] {
    let plain = isCompressed ? try inflated(bytes) : bytes
    var items: [Item] = []
    var lineNumber = 0
    // Line by line, so that memory depends on the limit of a batch, not on the number of lines in the body.
    let text = plain.span
    var start = 0
    while start < text.count {
      let end = text.firstIndex(of: UInt8(ascii: "\n"), from: start) ?? text.count
      var line = text.extracting(start..<end)
      start = end + 1
      lineNumber += 1
      if !line.isEmpty, line[line.count - 1] == UInt8(ascii: "\r") { line = line.extracting(first: line.count - 1) }
      if line.isEmpty { continue }
      guard items.count < limits.batchMessages else {
        throw ProblemError(
          .contentTooLarge,
          "the batch has more than \(limits.batchMessages) messages (the setting http.batch_messages): send several batches"
        )
      }
      guard UTF8StreamValidator.isValid(line) else {
        throw ProblemError(
          .invalidText, "line \(lineNumber) of the batch is not UTF-8: no message of the batch was accepted")
      }
      items.append(Item(payload: SharedBytes(copying: line), kind: .text))
    }
    guard !items.isEmpty else { throw ProblemError(.invalidParameter, "the batch is empty: send one message per line") }
    return items
  }

  private func inflated(_ bytes: [UInt8]) throws(ProblemError) -> [UInt8] {
    var inflater = Inflater(.gzipOrZlib)
    var output = ByteQueue()
    do throws(InflateError) {
      try inflater.inflate(bytes.span, into: &output, limit: limits.bodyBytes)
    } catch {
      switch error {
      case .malformed:
        throw ProblemError(
          .unsupportedEncoding, "the body is not gzip data: send it as Content-Encoding says, or without that field")
      case .tooLarge:
        throw ProblemError(
          .contentTooLarge, "the body decompresses to more than \(limits.bodyBytes) bytes (the setting http.body_bytes)"
        )
      }
    }
    guard inflater.hasEnded else { throw ProblemError(.unsupportedEncoding, "the gzip data in the body is incomplete") }
    return output.copyBytes()
  }
}
