import ByteStreams
import HTTPCodec

/// The CORS protocol of the Fetch standard. Pages of the origins in `http.origins` may send requests to the API and
/// read the responses. Responses to pages of other origins have no CORS fields, so browsers hide these responses from
/// the pages.
///
/// Immutable, and used by all event loops.
package struct CrossOrigin: Sendable {
  /// The allowed origin of a request.
  struct Origin: Equatable {
    fileprivate let index: Int
  }

  /// The allowed origins, in lower case and without a path, as browsers send them: `https://app.example.org`.
  private let origins: [[UInt8]]

  init(_ settings: APISettings) { origins = settings.origins.map { Array($0.lowercased().utf8) } }

  /// The origin of the page that sends the request; nil if there is none, or if it is not allowed.
  func origin(of request: borrowing HTTPRequestHead) -> Origin? {
    guard let value = request.fields.first(.origin) else { return nil }
    return find(value)
  }

  func find(_ value: Span<UInt8>) -> Origin? {
    for (index, origin) in origins.enumerated() where value.equalsIgnoringCase(origin.span) {
      return Origin(index: index)
    }
    return nil
  }

  /// Whether this is a preflight, by which a browser finds out whether it may send the actual request of a page.
  static func isPreflight(_ request: borrowing HTTPRequestHead) -> Bool {
    request.method == .options && request.fields.contains(.accessControlRequestMethod)
  }

  // MARK: Responses

  /// The header fields that pages may read.
  private static let exposed: StaticString =
    "Gateway-Call-Id, Gateway-Cursor, Gateway-Gap, Gateway-Heartbeat, Gateway-Id, Gateway-Time, Gateway-Topic, Gateway-Type, ETag, Link, Location, Retry-After, RateLimit, RateLimit-Policy, TTL, Idempotency-Replayed, Preference-Applied, WWW-Authenticate, Allow"

  /// The header fields that pages may send.
  private static let accepted: StaticString =
    "Authorization, Content-Type, Content-Encoding, Accept, Idempotency-Key, If-None-Match, Last-Event-ID, Prefer, TTL, Topic, traceparent, tracestate, X-Request-Id"

  /// Seconds for which a browser remembers the response to a preflight.
  private static var maximumAge: Int { 600 }

  /// Writes the fields of every response to a page of `origin`.
  ///
  /// - Parameter allowsCredentials: whether the request may use the cookie.
  func writeFields(for origin: Origin, allowsCredentials: Bool, into fields: inout ByteQueue) {
    writeOrigin(origin, allowsCredentials, into: &fields)
    fields.appendField("Access-Control-Expose-Headers", Self.exposed)
  }

  /// Writes the fields of the response to a preflight. They allow the requests that pages of `origin` may send to any
  /// path. A preflight has no credentials, so its response must not depend on which resources exist. If a resource does
  /// not exist, the page can read the 404 or 405 of its actual request.
  func writePreflight(for origin: Origin, allowsCredentials: Bool, into fields: inout ByteQueue) {
    writeOrigin(origin, allowsCredentials, into: &fields)
    fields.append("Access-Control-Allow-Methods: \(Methods.all.text)\r\n")
    fields.appendField("Access-Control-Allow-Headers", Self.accepted)
    fields.appendField("Access-Control-Max-Age", decimal: Self.maximumAge)
  }

  private func writeOrigin(_ origin: Origin, _ allowsCredentials: Bool, into fields: inout ByteQueue) {
    fields.append("Vary: Origin\r\nAccess-Control-Allow-Origin: " as StaticString)
    fields.append(origins[origin.index])
    fields.append("\r\n" as StaticString)
    if allowsCredentials { fields.append("Access-Control-Allow-Credentials: true\r\n" as StaticString) }
  }
}
