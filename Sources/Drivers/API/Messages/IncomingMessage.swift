import ByteStreams
import HTTPCodec

/// The head of a `POST /v1/messages`. The body is one message, byte for byte, or a batch of one message per line.
struct IncomingMessage {
  enum Form {
    case text, binary, lines
    /// The request has no `Content-Type`. The message is text if the body is UTF-8, otherwise binary.
    case undeclared
  }

  let form: Form
  /// Whether the body is declared as JSON. False for a body that the query declares as binary, whatever its
  /// `Content-Type`.
  let isJSON: Bool
  private let isCompressed: Bool
  let limits: Limits
  let parameters: SendParameters
  var idempotency: IdempotencyField?

  /// The limits of a request, from the `http` and `delivery` settings.
  struct Limits {
    /// Maximum size of the body in bytes, both before and after inflation.
    let bodyBytes: Int
    /// Maximum ratio of the size after inflation to the size before it.
    let inflationRatio: Int
    /// Maximum number of messages in a batch.
    let batchMessages: Int
    /// The default and the longest wait for `until`.
    let wait: TimeSpan
    let maximumWait: TimeSpan

    /// Returns the body without its content coding.
    func decoded(_ bytes: [UInt8], isCompressed: Bool) throws(Problem) -> [UInt8] {
      guard isCompressed else { return bytes }
      return try GzipContent.decode(bytes.span, limit: bodyBytes, ratio: inflationRatio)
    }
  }

  init(_ request: borrowing HTTPRequestHead, _ limits: Limits) throws(Problem) {
    self.limits = limits
    let form = try Self.form(of: request)
    isCompressed = try Self.isCompressed(request)
    parameters = try SendParameters(request, wait: limits.wait, maximum: limits.maximumWait)
    self.form = try Self.form(form, of: parameters.kind)
    isJSON = parameters.kind != .binary && Self.isJSON(request)
    idempotency = try IdempotencyField(request)
  }

  static func form(of request: borrowing HTTPRequestHead) throws(Problem) -> Form {
    guard let value = request.fields.first(.contentType), !value.isEmpty else { return .undeclared }
    // The usual values need no parsing.
    if value.equals("application/json") || value.equals("text/plain")
      || value.equals("application/x-www-form-urlencoded")
    {
      return .text
    }
    guard let type = HTTPMediaType(value) else {
      throw Problem(
        .unsupportedMediaType,
        "Content-Type '\(value.excerpt())' is malformed: use a media type such as text/plain or application/json")
    }
    if type.is("application", "x-ndjson") { return .lines }
    if type.type.equalsIgnoringCase("multipart") {
      throw Problem(
        .unsupportedMediaType,
        "multipart content is not supported: send each part in its own request, or a batch as application/x-ndjson")
    }
    guard isText(type) else { return .binary }
    if let charset = type.parameter("charset"),
      !charset.equalsIgnoringCase("utf-8"), !charset.equalsIgnoringCase("us-ascii"), !charset.equalsIgnoringCase("utf8")
    {
      throw Problem(
        .unsupportedMediaType,
        "charset '\(charset.excerpt())' is not supported: send text as UTF-8, or other bytes as application/octet-stream"
      )
    }
    return .text
  }

  /// Returns the form of a body. The query may state the kind of the message, for clients that cannot set
  /// `Content-Type`.
  static func form(_ form: Form, of kind: MessageKind?) throws(Problem) -> Form {
    guard let kind else { return form }
    if form == .lines {
      throw Problem(
        .invalidParameter, "type is for one message, and the messages of a batch are text: leave it out")
    }
    return kind == .text ? .text : .binary
  }

  static func isJSON(_ request: borrowing HTTPRequestHead) -> Bool {
    guard let value = request.fields.first(.contentType) else { return false }
    if value.equals("application/json") { return true }
    guard let type = HTTPMediaType(value) else { return false }
    return type.is("application", "json") || type.hasSuffix("+json")
  }

  /// Whether the type denotes text. The suffixes are registered in RFC 6839.
  private static func isText(_ type: borrowing HTTPMediaType) -> Bool {
    type.type.equalsIgnoringCase("text") || type.is("application", "json") || type.is("application", "xml")
      || type.is("application", "x-www-form-urlencoded") || type.hasSuffix("+json") || type.hasSuffix("+xml")
  }

  static func isCompressed(_ request: borrowing HTTPRequestHead) throws(Problem) -> Bool {
    // RFC 9110 §8.4: a list, in the order in which the codings were applied.
    var compressions = 0
    var isKnown = true
    request.fields.forEachElement(of: .contentEncoding) { coding in
      if coding.equalsIgnoringCase("identity") { return }
      compressions += 1
      isKnown = isKnown && (coding.equalsIgnoringCase("gzip") || coding.equalsIgnoringCase("x-gzip"))
    }
    guard isKnown, compressions <= 1 else {
      throw Problem(.unsupportedEncoding, "Content-Encoding is not supported: use gzip, once, or identity")
    }
    return compressions == 1
  }

  /// One message to be queued.
  struct Item {
    let payload: ByteString
    let kind: MessageKind
  }

  var isBatch: Bool { form == .lines }

  /// The size in bytes from which the body is read on another thread. Does not apply to a body that is passed on
  /// unread.
  var smallestLongBody: Int { LargeBody.smallest(isCompressed: isCompressed) }

  /// Whether the content of the body must be read, and not only passed on.
  var isExamined: Bool { isCompressed || form != .binary || idempotency != nil }

  /// Returns the body without its content coding.
  func decoded(_ bytes: [UInt8]) throws(Problem) -> [UInt8] {
    try limits.decoded(bytes, isCompressed: isCompressed)
  }

  /// Returns the decoded body as one message, validated.
  func item(in plain: [UInt8]) throws(Problem) -> Item {
    guard form != .binary else { return Item(payload: ByteString(plain), kind: .binary) }
    let isText = UTF8StreamValidator.isValid(plain.span)
    guard isText || form == .undeclared else {
      throw Problem(
        .invalidText, "a text message must be UTF-8: send other bytes with Content-Type: application/octet-stream")
    }
    return Item(payload: ByteString(plain), kind: isText ? .text : .binary)
  }

  /// Returns the messages in the decoded body of a batch, validated. All messages of a batch are text.
  func lines(in plain: [UInt8]) throws(Problem) -> [ByteSlice] {
    // In UTF-8, no sequence of several bytes contains a line feed. So every line is valid if the whole body is valid.
    guard UTF8StreamValidator.isValid(plain.span) else {
      let number = BatchLines.firstInvalid(in: plain.span)
      throw Problem(
        .invalidText, "line \(number) of the batch is not UTF-8: no message of the batch was accepted")
    }
    guard let lines = BatchLines.split(plain.span, atMost: limits.batchMessages, sharesStorage: parameters.topic == nil)
    else {
      throw Problem(
        .contentTooLarge,
        "the batch has more than \(limits.batchMessages) messages (the setting http.batch_messages), or more than \(BatchLines.maximumEmptyLines) empty lines: send several batches"
      )
    }
    guard !lines.isEmpty else { throw Problem(.invalidParameter, "the batch is empty: send one message per line") }
    return lines
  }
}
