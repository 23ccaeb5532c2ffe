import ByteStreams
import HTTPCodec
import Testing

/// A head with these lines, for helpers that read fields.
private func withFields<R>(_ lines: String, _ body: (borrowing HTTPFields) throws -> R) rethrows -> R {
  var decoder = HTTPResponseHeadDecoder()
  _ = try? decoder.append(Array("HTTP/1.1 200 OK\r\n\(lines)\r\n".utf8).span)
  return try body(decoder.fields)
}

@Suite struct HTTPQueryReaderTests {
  private func pairs(_ query: String) throws -> [String] { try pairs(Array(query.utf8)) }

  private func pairs(_ bytes: [UInt8]) throws -> [String] {
    var reader = HTTPQueryReader(bytes.span)
    var pairs: [String] = []
    while try reader.next() { pairs.append("\(reader.name.text())=\(reader.value.text())") }
    return pairs
  }

  @Test(arguments: [
    ("", []), ("a=b", ["a=b"]), ("a", ["a="]), ("a=", ["a="]), ("=b", ["=b"]),
    ("a=b=c&&d=%26%3D+%2B", ["a=b=c", "d=&= +"]),
    ("%61=%C3%A9&cursor=1.2", ["a=é", "cursor=1.2"]), ("a=b&", ["a=b"]),
  ])
  func readsNamesAndValues(query: String, expected: [String]) throws { #expect(try pairs(query) == expected) }

  @Test(arguments: ["wait=%", "wait=%4", "wait=%g1", "wait=a%00", "wait=%2"])
  func refusesABadEscapeAndNamesTheParameter(query: String) {
    #expect(throws: HTTPQueryError.self) { try pairs("a=b&" + query) }
    do { _ = try pairs(query) } catch let error as HTTPQueryError {
      #expect(error.parameter == "wait")
      #expect(error.problem == .badEscape)
    } catch {}
  }

  @Test func refusesBytesThatAreNotUTF8() {
    #expect(throws: HTTPQueryError.self) { try pairs("a=%ff") }
    #expect(throws: HTTPQueryError.self) { try pairs(Array("a=".utf8) + [0xFF]) }
  }
}

@Suite struct HTTPMediaTypeTests {
  @Test func parsesAMediaType() throws {
    let text = Array("Text/Plain ; Charset=\"utf-8\"; x=y".utf8)
    guard let type = HTTPMediaType(text.span) else {
      Issue.record("a valid media type is refused")
      return
    }
    let isText = type.is("text", "plain")
    #expect(isText)
    #expect(type.parameter("charset")?.text() == "utf-8")
    #expect(type.parameter("x")?.text() == "y")
    let missing = type.parameter("q") == nil
    #expect(missing)
  }

  @Test(arguments: ["", "text", "text/", "/plain", "te xt/plain", "text/plain/x", ";"])
  func refusesInvalidMediaTypes(text: String) {
    let bytes = Array(text.utf8)
    let isNil = HTTPMediaType(bytes.span) == nil
    #expect(isNil)
  }
}

@Suite struct HTTPPreferencesTests {
  @Test(arguments: [
    ("", nil, false), ("Prefer: wait=10\r\n", 10, false), ("Prefer: respond-async, WAIT = \"5\"; x=y\r\n", 5, true),
    ("Prefer: a=b, ,wait=x\r\nPrefer: wait=7, wait=9\r\n", 7, false), ("Prefer: wait\r\n", nil, false),
    ("Prefer: wait=-1\r\n", nil, false), ("Prefer: foo=\"a, wait=3\"\r\n", nil, false),
  ])
  func readsTheSupportedPreferences(lines: String, wait: Int?, respondAsync: Bool) {
    let preferences = withFields(lines) { HTTPPreferences($0) }
    #expect(preferences.wait == wait)
    #expect(preferences.respondAsync == respondAsync)
  }
}

@Suite struct DeltaSecondsTests {
  @Test(arguments: [
    ("0", 0), ("30", 30), ("99999999999999999999", 1 << 31), ("4294967296", 1 << 31), ("", nil), ("-1", nil),
    ("1.5", nil), ("1s", nil), ("00000000000000000000030", 30),
  ])
  func readsWholeSeconds(text: String, expected: Int?) {
    let value = Array(text.utf8).span.deltaSeconds()
    #expect(value == expected)
  }
}

@Suite struct HTTPDateTests {
  private static let now: Int64 = 1_795_000_000

  private func parse(_ text: String) -> Int64? { HTTPDate.parse(Array(text.utf8).span, now: Self.now) }

  @Test(arguments: [
    "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
  ])
  func readsAllThreeFormsOfADate(text: String) { #expect(parse(text) == 784_111_777) }

  @Test(arguments: [
    "", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT",
    "Sun, 06 Nov 1994 24:00:00 GMT",
    "Xxx, 06 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT", "784111777", "Sun, 06 Nov 1994 08:49:37 GMT ",
    "Sun,",
    "Sunday, 06-Nov-94 08:49:37", "Sun Nov 06 08:49:37 94  ",
  ])
  func refusesInvalidDates(text: String) { #expect(parse(text) == nil) }

  @Test func aTwoDigitYearIsInTheNearestPastCentury() {
    #expect(parse("Sunday, 06-Nov-26 08:49:37 GMT") == parse("Fri, 06 Nov 2026 08:49:37 GMT"))
    #expect(parse("Sunday, 06-Nov-99 08:49:37 GMT") == parse("Sat, 06 Nov 1999 08:49:37 GMT"))
  }

  @Test(arguments: [
    (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"), (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
    (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
    (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"), (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
  ])
  func writesAndReadsBack(seconds: Int64, text: String) {
    var output = ByteQueue()
    HTTPDate.append(seconds, to: &output)
    let written = output.bytes.text()
    #expect(written == text)
    #expect(parse(text) == seconds)
  }

  @Test(arguments: [
    (253_402_300_800, "Fri, 31 Dec 9999 23:59:59 GMT"), (Int64.max, "Fri, 31 Dec 9999 23:59:59 GMT"),
    (-62_135_596_801, "Mon, 01 Jan 0001 00:00:00 GMT"), (Int64.min, "Mon, 01 Jan 0001 00:00:00 GMT"),
  ])
  func writesTheNearestValidDateForAClockOutOfRange(seconds: Int64, text: String) {
    var output = ByteQueue()
    HTTPDate.append(seconds, to: &output)
    let written = output.bytes.text()
    #expect(written == text)
  }
}

@Suite struct HTTPListElementsTests {
  @Test(arguments: [
    ("", []), (" , ,", []), ("a", ["a"]), ("keep-alive, Upgrade ,x", ["keep-alive", "Upgrade", "x"]),
    ("a=\"b,c\",d", ["a=\"b,c\"", "d"]), ("a=\"b\\\",c\", d", ["a=\"b\\\",c\"", "d"]), ("a=\"b, c", ["a=\"b, c"]),
    ("\"\\", ["\"\\"]),
  ])
  func splitsAtCommasOutsideQuotes(text: String, expected: [String]) {
    #expect(elements(of: text, .strings) == expected)
  }

  private func elements(of text: String, _ quoting: HTTPListElements.Quoting) -> [String] {
    let bytes = Array(text.utf8)
    var elements = HTTPListElements(bytes.span, quoting: quoting)
    var found: [String] = []
    while let element = elements.next() { found.append(element.text()) }
    return found
  }

  @Test func aBackslashInAnEntityTagEscapesNothing() {
    let text = #"W/"a\", "b,c","d"#
    #expect(elements(of: text, .entityTags) == [#"W/"a\""#, #""b,c""#, #""d"#])
  }

  @Test func aQuotationMarkAmongTokensIsACharacter() {
    #expect(elements(of: #"", a, "b,c""#, .none) == [#"""#, "a", #""b"#, #"c""#])
  }

  /// A quotation mark in a client's value must not hide the elements that proxies append.
  @Test(arguments: [
    ("connection", #"", close"#, 2), ("upgrade", #""a, b"#, 2), ("accept-encoding", #"", gzip"#, 2),
    ("content-encoding", #"", gzip"#, 2), ("x-forwarded-for", #"", 192.0.2.1"#, 2), ("accept", #"a/b;c="d,e""#, 1),
    ("prefer", #"a="b,c""#, 1), ("transfer-encoding", #"a;b="c,d""#, 1), ("expect", #"a="b,c""#, 1),
    ("if-none-match", #""a\", "b,c""#, 2),
  ])
  func eachFieldHasTheQuotingOfItsGrammar(name: String, value: String, count: Int) throws {
    let field = try #require(HTTPFieldName.allCases.first { "\($0.name)" == name })
    #expect(elements(of: value, field.listQuoting).count == count)
  }
}

@Suite struct HTTPEntityTagsTests {
  @Test(arguments: [
    ("", []), (" , ,", []), ("\"a\"", ["a"]), ("W/\"a\" ,\"b\"", ["a", "b"]), ("\"\"", [""]), ("W/\"\"", [""]),
    ("*", ["*"]),
    ("\"a,b\", \"c\"", ["a,b", "c"]), ("\"a\\\", W/\"b\"", ["a\\", "b"]), ("a ,\tW/b", ["a", "b"]), ("W/", [""]),
    ("\"a", ["a"]), ("\"", [""]), ("W/\"a\"-gzip, \"b\"", ["a", "-gzip", "b"]),
  ])
  func entityTagsAreReadWithoutQuotesAndEscapes(text: String, expected: [String]) {
    let bytes = Array(text.utf8)
    var tags = HTTPEntityTags(bytes.span)
    var found: [String] = []
    while let tag = tags.next() { found.append(tag.text()) }
    #expect(found == expected)
  }
}
