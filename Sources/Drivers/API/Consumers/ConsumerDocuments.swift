import ByteStreams
import Consumers
import HTTPCodec
import HTTPServer
import Inbox
import JSONCodec

extension HTTPMediaType {
  /// Whether a body of this type may be a JSON document. Forms and bytes are accepted, too: if the user states no type,
  /// `curl -d` declares a form, and many libraries declare bytes.
  func mayBeDocument() -> Bool {
    self.is("application", "json") || self.is("application", "x-www-form-urlencoded")
      || self.is("application", "octet-stream")
  }

  /// The types that `mayBeDocument` accepts, for the text of an error.
  static var documentTypes: String {
    "application/json, or one of the defaults of clients: application/x-www-form-urlencoded or application/octet-stream"
  }
}

/// A JSON object that a client sends, with its members by name. Unknown and repeated members are refused.
struct RequestDocument {
  private let bytes: [UInt8]
  private let members: [(name: String, value: Range<Int>)]

  /// Refuses a request by its head, before its content is read.
  ///
  /// - Parameter isMergePatch: whether the document is a JSON merge patch (RFC 7396), which has its own type.
  static func check(
    _ request: borrowing HTTPRequestHead, limit: Int, isMergePatch: Bool = false
  ) throws(Problem) {
    if case .length(let count) = request.framing, count > limit { throw tooLarge(limit) }
    guard let value = request.fields.first(.contentType), !value.isEmpty else { return }
    if let type = HTTPMediaType(value),
      type.mayBeDocument() || isMergePatch && type.is("application", "merge-patch+json")
    {
      return
    }
    throw Problem(
      .unsupportedMediaType,
      "Content-Type '\(value.excerpt())' is not supported: use \(isMergePatch ? "application/merge-patch+json, " : "")\(HTTPMediaType.documentTypes)"
    )
  }

  /// - Parameter accepted: the names of the accepted members.
  init(_ body: RequestBody?, limit: Int, accepting accepted: [String]) throws(Problem) {
    if body?.exceedsLimit == true { throw Self.tooLarge(limit) }
    let bytes = body?.bytes ?? []
    self.bytes = bytes
    guard !bytes.isEmpty else {
      members = []
      return
    }
    guard UTF8StreamValidator.isValid(bytes.span) else {
      throw Problem(.invalidDocument, "the body is not JSON: it is not UTF-8")
    }
    do throws(JSONError) {
      _ = try JSONValidator.validate(bytes.span)
    } catch {
      throw Problem(.invalidDocument, "the body is not JSON: \(error)")
    }
    guard let object = JSONObject(bytes.span) else {
      throw Problem(.invalidDocument, "the body is not a JSON object")
    }
    var members: [(name: String, value: Range<Int>)] = []
    for member in object.members {
      let name = String(decoding: JSONString.content(of: bytes.span.extracting(member.name)) ?? [], as: UTF8.self)
      guard accepted.contains(name) else {
        throw Problem(
          .invalidDocument,
          "member '\(Array(name.utf8).span.excerpt())' is unknown: use \(accepted.joined(separator: ", "))")
      }
      guard !members.contains(where: { $0.name == name }) else {
        throw Problem(.invalidDocument, "member '\(name)' is repeated: give it once")
      }
      members.append((name, member.value))
    }
    self.members = members
  }

  private static func tooLarge(_ limit: Int) -> Problem {
    Problem(.contentTooLarge, "the body is larger than \(limit) bytes, the maximum for this path")
  }

  /// The value of a member as written; nil if the member is missing or null.
  private func value(_ name: String) -> ArraySlice<UInt8>? {
    guard let member = members.first(where: { $0.name == name }) else { return nil }
    let value = bytes[member.value]
    return value.elementsEqual("null".utf8) ? nil : value
  }

  func has(_ name: String) -> Bool { value(name) != nil }

  private func fail(_ name: String, _ expectation: String) -> Problem {
    let shown = value(name).map { Array($0).span.excerpt() } ?? "null"
    return Problem(.invalidDocument, "\(name) \(shown) is not valid: use \(expectation)")
  }

  func boolean(_ name: String) throws(Problem) -> Bool? {
    guard let value = value(name) else { return nil }
    if value.elementsEqual("true".utf8) { return true }
    if value.elementsEqual("false".utf8) { return false }
    throw fail(name, "true or false")
  }

  func string(_ name: String, _ expectation: String) throws(Problem) -> [UInt8]? {
    guard let value = value(name) else { return nil }
    guard let content = JSONString.content(of: Array(value).span) else { throw fail(name, expectation) }
    return content
  }

  func parsed<Value>(
    _ name: String, _ expectation: String, _ parse: ([UInt8]) -> Value?
  ) throws(Problem) -> Value? {
    guard let text = try string(name, expectation) else { return nil }
    guard let value = parse(text) else { throw fail(name, expectation) }
    return value
  }

  /// The value of a member that is a duration: a string, as in query parameters, or a number of seconds.
  func duration(_ name: String, in range: ClosedRange<TimeSpan>) throws(Problem) -> TimeSpan? {
    guard let value = value(name) else { return nil }
    let text = JSONString.content(of: Array(value).span) ?? Array(value)
    guard let span = TimeSpan(text.span), range.contains(span) else {
      throw fail(
        name, "a duration from \(range.lowerBound.text) to \(range.upperBound.text), such as \"30s\" or \"1h30m\"")
    }
    return span
  }

  func count(_ name: String, in range: ClosedRange<UInt32>) throws(Problem) -> UInt32? {
    guard let value = value(name) else { return nil }
    guard let count = Array(value).span.decimalValue().flatMap({ UInt32(exactly: $0) }), range.contains(count) else {
      throw fail(name, "a number from \(range.lowerBound) to \(range.upperBound)")
    }
    return count
  }

  /// The members of the object `name`, whose values must be strings; empty if the object is missing. The text of an
  /// error does not repeat a value, since the value may be secret.
  func strings(in name: String, _ expectation: String) throws(Problem) -> [String: String] {
    guard let value = value(name) else { return [:] }
    let bytes = Array(value)
    let problem = Problem(.invalidDocument, "\(name) is not valid: use \(expectation)")
    guard let object = JSONObject(bytes.span) else { throw problem }
    var strings: [String: String] = [:]
    for member in object.members {
      guard let key = JSONString.content(of: bytes.span.extracting(member.name)),
        let text = JSONString.content(of: bytes.span.extracting(member.value)),
        strings.updateValue(String(decoding: text, as: UTF8.self), forKey: String(decoding: key, as: UTF8.self)) == nil
      else { throw problem }
    }
    return strings
  }

  /// The elements of an array of strings; empty if the member is missing.
  ///
  /// - Parameter maximum: the maximum number of elements.
  func strings(_ name: String, maximum: Int) throws(Problem) -> [[UInt8]] {
    guard let value = value(name) else { return [] }
    let expectation = "an array of at most \(maximum) strings"
    guard let ranges = JSONArray.elements(of: Array(value).span, maximum: maximum) else {
      throw fail(name, expectation)
    }
    var strings: [[UInt8]] = []
    let bytes = Array(value)
    for range in ranges {
      guard let content = JSONString.content(of: bytes.span.extracting(range)) else { throw fail(name, expectation) }
      strings.append(content)
    }
    return strings
  }
}

/// The document of a `PUT /v1/consumers/{name}`.
struct ConsumerDocument {
  /// Maximum size in bytes: 16 topics of 256 bytes each, which may be escaped, and the other members.
  static let limit = 32_768

  var settings = ConsumerSettings()
  var start = StartingPoint.latest

  init(_ body: RequestBody?) throws(Problem) {
    let document = try RequestDocument(
      body, limit: Self.limit,
      accepting: ["start", "share", "visibility", "max_deliveries", "order_by", "topics", "idle"])
    settings.isWorkSharing = try document.boolean("share") ?? false
    if let start = try document.parsed("start", StartingPoint.expectation, { StartingPoint(cursor: $0.span) }) {
      self.start = start
    }
    if !settings.isWorkSharing {
      for name in ["visibility", "max_deliveries", "order_by"] where document.has(name) {
        throw Problem(
          .invalidDocument,
          "\(name) is accepted for a work-sharing consumer only: leave it out, or add \"share\":true")
      }
    }
    if let span = try document.duration("visibility", in: ConsumerSettings.visibilities) { settings.visibility = span }
    if let span = try document.duration("idle", in: ConsumerSettings.idleTimes) { settings.idle = span }
    if let count = try document.count("max_deliveries", in: ConsumerSettings.deliveries) {
      settings.maximumDeliveries = count
    }
    settings.order = try document.parsed("order_by", "\"all\", \"topic\" or a JSON pointer such as \"/order/id\"") {
      ConsumerOrder(String(decoding: $0, as: UTF8.self))
    }
    for topic in try document.strings("topics", maximum: TopicFilter.maximumPatterns) {
      guard settings.add(topic: topic) else {
        throw Problem(
          .invalidDocument,
          "topic '\(topic.span.excerpt())' is not accepted: use 1 to \(PushTopic.maximumBytes) bytes, with a final '*' for all topics that begin so"
        )
      }
    }
  }
}

/// The document of a `POST /v1/consumers/{name}/settle`.
struct SettleDocument {
  /// Maximum number of leases in a request: as many as a consumer may have.
  static let maximumLeases = 1_000
  /// Maximum size in bytes: `maximumLeases` leases of the longest form, each with quotation marks, a comma and a line
  /// break, and the names of the members.
  static let limit = 65_536

  /// The settlements, in the order of the results in the response.
  private(set) var settlements: [(lease: Lease, settlement: Settlement)] = []

  init(_ body: RequestBody?) throws(Problem) {
    let document = try RequestDocument(
      body, limit: Self.limit, accepting: ["ack", "release", "reject", "extend", "delay"])
    let delay = try document.duration("delay", in: ConsumerSettings.delays)
    if delay != nil, !document.has("release") {
      throw Problem(.invalidDocument, "delay applies to release: add the leases to release, or leave it out")
    }
    let all: [(String, Settlement)] = [
      ("ack", .acknowledge), ("release", .release(delay ?? .zero)), ("reject", .reject), ("extend", .extend),
    ]
    for (name, settlement) in all {
      for text in try document.strings(name, maximum: Self.maximumLeases) {
        guard let lease = Lease(text.span) else {
          throw Problem(
            .invalidDocument, "lease '\(text.span.excerpt())' is not valid: use the 'lease' of a received message")
        }
        settlements.append((lease, settlement))
      }
    }
    guard settlements.count <= Self.maximumLeases else {
      throw Problem(
        .invalidDocument,
        "the body has \(settlements.count) leases: settle at most \(Self.maximumLeases) with one request")
    }
  }
}
