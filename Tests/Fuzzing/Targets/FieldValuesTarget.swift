import ByteStreams
import HTTPCodec

/// Parsed values of header fields: dates, numbers, media types, preferences, lists.
enum FieldValuesTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    try readDate(input)
    try readNumbers(input)
    try readList(input)
    try readEntityTags(input)
    try readInHead(input)
  }

  /// A date that is parsed, written and parsed again stays the same.
  private static func readDate(_ input: Span<UInt8>) throws(Finding) {
    let now: Int64 = 1_700_000_000
    guard let date = HTTPDate.parse(input, now: now) else { return }
    var written = ByteQueue()
    HTTPDate.append(date, to: &written)
    try require(written.count == HTTPDate.byteCount, "the date is written in \(written.count) bytes")
    let again = HTTPDate.parse(written.bytes, now: now)
    try require(again == date, "the date \(date) is \(String(describing: again)) after writing and parsing")
  }

  private static func readNumbers(_ input: Span<UInt8>) throws(Finding) {
    let text = input.text()
    let isDigits = !text.isEmpty && text.utf8.allSatisfy { (0x30...0x39).contains($0) }
    // A number with too many digits is invalid or limited to the maximum.
    let expected = isDigits ? min(Int(text) ?? .max, 1 << 31) : nil
    try require(input.deltaSeconds() == expected, "'\(text)' is read as \(String(describing: input.deltaSeconds()))")
    if let value = input.decimalValue() { try require(isDigits && Int(text) == value, "'\(text)' is read as \(value)") }
    if let span = TimeSpan(input) {
      try require(span >= .zero && span <= .longestParsable, "'\(text)' is read as \(span.text)")
      try require(TimeSpan(span.text) == span, "'\(text)' is read as \(span.text), which is read differently")
    }
  }

  /// Elements are in the order of the list, not empty, and without surrounding whitespace.
  private static func readList(_ input: Span<UInt8>) throws(Finding) {
    for quoting in [HTTPListElements.Quoting.none, .strings, .entityTags] { try readList(input, quoting) }
  }

  private static func readList(_ input: Span<UInt8>, _ quoting: HTTPListElements.Quoting) throws(Finding) {
    var elements = HTTPListElements(input, quoting: quoting)
    var total = 0
    while let element = elements.next() {
      total += element.count + 1
      let isTrimmed = element.trimmingWhitespace().count == element.count
      try require(!element.isEmpty && isTrimmed, "an element is '\(element.text())'")
    }
    try require(total <= input.count + 1, "the elements are longer than their list")
  }

  /// Tags are in the order of the list, and no longer than the list.
  private static func readEntityTags(_ input: Span<UInt8>) throws(Finding) {
    var tags = HTTPEntityTags(input)
    var total = 0
    var count = 0
    while let tag = tags.next() {
      total += tag.count
      count += 1
      try require(count <= input.count, "there are more entity tags than bytes")
    }
    try require(total <= input.count, "the entity tags are longer than their list")
  }

  private static func readInHead(_ input: Span<UInt8>) throws(Finding) {
    var head = ByteQueue()
    head.append("GET / HTTP/1.1\r\nHost: a\r\n")
    for name in ["Prefer", "Content-Type"] {
      head.append("\(name): ")
      head.append(input)
      head.append("\r\n")
    }
    head.append("\r\n")
    var connection = HTTPServerConnection()
    connection.receive(head.bytes)
    guard let event = try? connection.nextEvent(), event == .head else { return }
    if let wait = HTTPPreferences(connection.request.fields).wait {
      try require((0...(1 << 31)).contains(wait), "Prefer is read as a wait of \(wait) seconds")
    }
    guard let value = connection.request.fields.first(.contentType), let media = HTTPMediaType(value) else { return }
    try require(media.type.isToken() && media.subtype.isToken(), "the parts of the media type are not tokens")
    if let charset = media.parameter("charset") {
      try require(charset.count <= value.count, "a parameter is longer than its field")
    }
  }
}
