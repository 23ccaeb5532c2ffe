import ByteStreams
import Testing

@testable import HTTPCodec

@Suite struct NegotiationTests {
  /// The offered type that a request with these fields prefers. If it prefers several types equally, the first of them.
  private func preferred(_ fields: String, among offered: [(StaticString, StaticString)]) throws -> String? {
    var connection = HTTPServerConnection()
    connection.receive(Array("GET / HTTP/1.1\r\nHost: x\r\n\(fields)\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    var best: (name: String, quality: Int)?
    for (type, subtype) in offered {
      let quality = connection.request.fields.quality(of: type, subtype)
      if quality > best?.quality ?? 0 { best = ("\(type)/\(subtype)", quality) }
    }
    return best?.name
  }

  private static let poll: [(StaticString, StaticString)] = [
    ("application", "json"), ("application", "x-ndjson"), ("text", "plain"), ("application", "octet-stream"),
  ]

  /// The default fields of clients.
  @Test(arguments: [
    (
      "Chrome, navigation",
      "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
    ),
    ("Chrome, img", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"),
    ("Chrome and Firefox, fetch", "*/*"),
    (
      "Firefox, navigation",
      "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/png,image/svg+xml,*/*;q=0.8"
    ),
    ("Firefox, img", "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"),
    ("curl, requests, httpx, aiohttp, wget", "*/*"),
    ("HttpURLConnection", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"),
    ("axios", "application/json, text/plain, */*"),
    ("jQuery", "application/json, text/javascript, */*; q=0.01"),
    ("an empty field", ""), ("spaces", "  "),
  ])
  func clientsThatAcceptAnythingGetTheFirstType(client: String, accept: String) throws {
    #expect(try preferred("Accept: \(accept)\r\n", among: Self.poll) == "application/json", "\(client)")
  }

  @Test func clientsWithoutAcceptGetTheFirstType() throws {
    // Go, OkHttp, the JDK's HttpClient.
    #expect(try preferred("", among: Self.poll) == "application/json")
  }

  @Test(
    arguments: [
      ("application/x-ndjson", "application/x-ndjson"), ("Application/X-NDJSON", "application/x-ndjson"),
      ("text/plain", "text/plain"), ("text/*", "text/plain"), ("text/*;q=0.5, */*;q=0.1", "text/plain"),
      ("application/*", "application/json"), ("application/json;q=0.5, text/plain;q=0.6", "text/plain"),
      ("application/json;q=0, */*", "application/x-ndjson"),
      ("*/*;q=0.1, application/octet-stream;q=0.2", "application/octet-stream"),
      ("application/json;charset=utf-8", "application/json"), ("application/json; q=0.001", "application/json"),
      ("text/plain;format=\"a;q=0\";q=1, application/json;q=0.9", "text/plain"),
      ("text/plain;Q=0.2, application/json;q=.1", "text/plain"),
      ("text/plain;q=high", "text/plain"), ("text/event-stream, */*;q=0.1", "application/json"),
      ("text/plain;q=1.5, application/json", "application/json"),
      ("text/plain;q=0.9999, application/json;q=0.9995", "application/json"),
    ] as [(String, String)])
  func theHighestQualityOfTheMostSpecificRangeWins(accept: String, expected: String) throws {
    #expect(try preferred("Accept: \(accept)\r\n", among: Self.poll) == expected, "\(accept)")
  }

  @Test(arguments: [
    "text/event-stream", "text/html", "application/json;q=0", "*/*;q=0", "json", "application", "image/*", "*/json",
    "text/html, application/xhtml+xml", ";q=1", "text/html;q=0.8, */*;q=0.000",
  ])
  func noTypeIsChosenIfNoneIsAccepted(accept: String) throws {
    #expect(try preferred("Accept: \(accept)\r\n", among: Self.poll) == nil, "\(accept)")
  }

  @Test func severalFieldLinesAreOneList() throws {
    #expect(try preferred("Accept: */*;q=0.1\r\nAccept: text/plain\r\n", among: Self.poll) == "text/plain")
    #expect(
      try preferred("Accept: */*\r\nAccept: application/json;q=0.5\r\n", among: Self.poll) == "application/x-ndjson")
  }

  @Test(
    arguments: [
      (nil, .identity), ("", .identity), ("gzip", .gzip), ("gzip, deflate", .gzip), ("gzip, deflate, br, zstd", .gzip),
      ("x-gzip", .gzip), ("GZIP", .gzip), ("*", .gzip), ("br", .identity), ("identity", .identity),
      ("gzip;q=0", .identity),
      ("gzip;q=0.5, identity", .identity), ("gzip;q=0.5, identity;q=0.2", .gzip), ("gzip, *;q=0", .gzipOnly),
      ("gzip, identity;q=0", .gzipOnly), ("identity;q=0", .none), ("*;q=0", .none), ("br, *;q=0", .none),
      ("*;q=0, identity", .identity), ("gzip;q=0, *", .identity), ("identity;q=0, *;q=0.1", .gzipOnly),
      ("gzip;q=0.001", .gzip),
    ] as [(String?, HTTPAcceptedCodings)])
  func gzipIsUsedWhereItIsAcceptedAndPreferred(value: String?, expected: HTTPAcceptedCodings) throws {
    var connection = HTTPServerConnection()
    let field = value.map { "Accept-Encoding: \($0)\r\n" } ?? ""
    connection.receive(Array("GET / HTTP/1.1\r\nHost: x\r\n\(field)\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    #expect(HTTPAcceptedCodings(connection.request.fields) == expected, "\(field)")
  }
}
