import ByteStreams

/// The fields that this program uses. Names are classified once, when a head is parsed. Later lookups compare only one
/// byte.
package enum HTTPFieldName: UInt8, CaseIterable, Sendable {
  /// Any other field name.
  case other
  case accept
  case acceptEncoding
  case accessControlRequestHeaders
  case accessControlRequestMethod
  case authorization
  case cacheControl
  case connection
  case contentEncoding
  case contentLength
  case contentType
  case date
  case drawbridgeWaited
  case expect
  case host
  case idempotencyKey
  case ifMatch
  case ifNoneMatch
  case keepAlive
  case lastEventID
  case location
  case origin
  case prefer
  case proxyAuthenticate
  case range
  case retryAfter
  case secFetchSite
  case secWebSocketAccept
  case secWebSocketExtensions
  case secWebSocketProtocol
  case te
  case topic
  case traceparent
  case tracestate
  case trailer
  case transferEncoding
  case ttl
  case upgrade
  case userAgent
  case wwwAuthenticate
  case xEnvoyExpectedTimeout
  case xForwardedFor
  case xRequestID

  /// The name in lower case; empty for `other`.
  package var name: StaticString {
    switch self {
    case .other: ""
    case .accept: "accept"
    case .acceptEncoding: "accept-encoding"
    case .accessControlRequestHeaders: "access-control-request-headers"
    case .accessControlRequestMethod: "access-control-request-method"
    case .authorization: "authorization"
    case .cacheControl: "cache-control"
    case .connection: "connection"
    case .contentEncoding: "content-encoding"
    case .contentLength: "content-length"
    case .contentType: "content-type"
    case .date: "date"
    case .drawbridgeWaited: "drawbridge-waited"
    case .expect: "expect"
    case .host: "host"
    case .idempotencyKey: "idempotency-key"
    case .ifMatch: "if-match"
    case .ifNoneMatch: "if-none-match"
    case .keepAlive: "keep-alive"
    case .lastEventID: "last-event-id"
    case .location: "location"
    case .origin: "origin"
    case .prefer: "prefer"
    case .proxyAuthenticate: "proxy-authenticate"
    case .range: "range"
    case .retryAfter: "retry-after"
    case .secFetchSite: "sec-fetch-site"
    case .secWebSocketAccept: "sec-websocket-accept"
    case .secWebSocketExtensions: "sec-websocket-extensions"
    case .secWebSocketProtocol: "sec-websocket-protocol"
    case .te: "te"
    case .topic: "topic"
    case .traceparent: "traceparent"
    case .tracestate: "tracestate"
    case .trailer: "trailer"
    case .transferEncoding: "transfer-encoding"
    case .ttl: "ttl"
    case .upgrade: "upgrade"
    case .userAgent: "user-agent"
    case .wwwAuthenticate: "www-authenticate"
    case .xEnvoyExpectedTimeout: "x-envoy-expected-rq-timeout-ms"
    case .xForwardedFor: "x-forwarded-for"
    case .xRequestID: "x-request-id"
    }
  }

  /// Whether a request may contain the field only once. If the field had two values, this program and the next server
  /// could use different values (RFC 9110 §5.3).
  var isSingleton: Bool {
    switch self {
    case .authorization, .contentLength, .contentType, .drawbridgeWaited, .host, .idempotencyKey, .lastEventID, .origin,
      .secFetchSite,
      .topic,
      .ttl, .userAgent, .xEnvoyExpectedTimeout:
      true
    case .other, .accept, .acceptEncoding, .accessControlRequestHeaders, .accessControlRequestMethod, .cacheControl,
      .connection, .contentEncoding, .date, .expect, .ifMatch, .ifNoneMatch, .keepAlive, .location, .prefer,
      .proxyAuthenticate, .range, .retryAfter, .secWebSocketAccept, .secWebSocketExtensions, .secWebSocketProtocol,
      .te, .traceparent, .tracestate, .trailer, .transferEncoding, .upgrade, .wwwAuthenticate, .xForwardedFor,
      .xRequestID:
      false
    }
  }

  /// The meaning of a quotation mark in the elements of the field, if the field is a list.
  package var listQuoting: HTTPListElements.Quoting {
    switch self {
    case .ifMatch, .ifNoneMatch: .entityTags
    // The grammars of these fields have parameters or values that may be quoted strings.
    case .accept, .cacheControl, .expect, .prefer, .proxyAuthenticate, .secWebSocketExtensions, .te, .transferEncoding,
      .wwwAuthenticate:
      .strings
    // These fields are lists of tokens or addresses, or no lists at all.
    case .other, .acceptEncoding, .accessControlRequestHeaders, .accessControlRequestMethod, .authorization,
      .connection, .contentEncoding, .contentLength, .contentType, .date, .drawbridgeWaited, .host, .idempotencyKey,
      .keepAlive, .lastEventID, .location, .origin, .range, .retryAfter, .secFetchSite, .secWebSocketAccept,
      .secWebSocketProtocol, .topic, .traceparent, .tracestate, .trailer, .ttl, .upgrade, .userAgent,
      .xEnvoyExpectedTimeout, .xForwardedFor, .xRequestID:
      .none
    }
  }

  /// Whether the field concerns the connection, or the framing of a message on it. A program that forwards the message
  /// replaces the field.
  var concernsConnection: Bool {
    switch self {
    case .connection, .contentLength, .keepAlive, .proxyAuthenticate, .te, .trailer, .transferEncoding, .upgrade: true
    default: false
    }
  }

  /// Whether the field concerns framing, routing or authorisation. In a trailer section such a field arrives too late
  /// to be obeyed, and recipients may disagree about it (RFC 9110 §6.5.1).
  var isForbiddenInTrailers: Bool {
    switch self {
    case .authorization, .cacheControl, .connection, .contentEncoding, .contentLength, .contentType, .expect, .host,
      .ifMatch, .ifNoneMatch, .keepAlive, .proxyAuthenticate, .range, .te, .trailer, .transferEncoding, .upgrade,
      .wwwAuthenticate:
      true
    case .other, .accept, .acceptEncoding, .accessControlRequestHeaders, .accessControlRequestMethod, .date,
      .drawbridgeWaited, .idempotencyKey, .lastEventID, .location, .origin, .prefer, .retryAfter, .secFetchSite,
      .secWebSocketAccept, .secWebSocketExtensions, .secWebSocketProtocol, .topic, .traceparent, .tracestate, .ttl,
      .userAgent,
      .xEnvoyExpectedTimeout, .xForwardedFor, .xRequestID:
      false
    }
  }

  /// Returns the field that `name` denotes. `name` must consist of token characters.
  static func classify(_ name: RawSpan) -> HTTPFieldName {
    switch name.byteCount {
    case 2: match(name, .te)
    case 3: match(name, .ttl)
    case 4: match(name, .host, .date)
    case 5: match(name, .topic, .range)
    case 6: match(name, .accept, .prefer, .expect, .origin)
    case 7: match(name, .upgrade, .trailer)
    case 8: match(name, .ifMatch, .location)
    case 10: match(name, .connection, .userAgent, .keepAlive, .tracestate)
    case 11: match(name, .traceparent, .retryAfter)
    case 12: match(name, .contentType, .xRequestID)
    case 13: match(name, .authorization, .cacheControl, .ifNoneMatch, .lastEventID)
    case 14: match(name, .contentLength, .secFetchSite)
    case 15: match(name, .acceptEncoding, .idempotencyKey, .xForwardedFor)
    case 16: match(name, .contentEncoding, .wwwAuthenticate)
    case 17: match(name, .transferEncoding, .drawbridgeWaited)
    case 18: match(name, .proxyAuthenticate)
    case 20: match(name, .secWebSocketAccept)
    case 22: match(name, .secWebSocketProtocol)
    case 24: match(name, .secWebSocketExtensions)
    case 29: match(name, .accessControlRequestMethod)
    case 30: match(name, .xEnvoyExpectedTimeout, .accessControlRequestHeaders)
    default: .other
    }
  }

  @inline(__always)
  private static func match(_ name: RawSpan, _ a: HTTPFieldName) -> HTTPFieldName { a.isNamed(name) ? a : .other }

  @inline(__always)
  private static func match(_ name: RawSpan, _ a: HTTPFieldName, _ b: HTTPFieldName) -> HTTPFieldName {
    a.isNamed(name) ? a : match(name, b)
  }

  @inline(__always)
  private static func match(
    _ name: RawSpan, _ a: HTTPFieldName, _ b: HTTPFieldName, _ c: HTTPFieldName
  ) -> HTTPFieldName {
    a.isNamed(name) ? a : match(name, b, c)
  }

  @inline(__always)
  private static func match(
    _ name: RawSpan, _ a: HTTPFieldName, _ b: HTTPFieldName, _ c: HTTPFieldName, _ d: HTTPFieldName
  ) -> HTTPFieldName {
    a.isNamed(name) ? a : match(name, b, c, d)
  }

  @inline(__always)
  private func isNamed(_ bytes: RawSpan) -> Bool { bytes.equalsTokenIgnoringCase(name) }
}

extension RawSpan {
  /// Whether these token characters equal `text`, ignoring the case of A–Z. Compares eight bytes at a time. `text` must
  /// be lower case, as long as these bytes, and without `~` and DEL. Under this condition, setting bit 5 of every byte
  /// removes only the difference in case.
  @inline(__always)
  fileprivate func equalsTokenIgnoringCase(_ text: StaticString) -> Bool {
    let size = byteCount
    let expected = unsafe UnsafeRawPointer(text.utf8Start)
    if size >= 8 {
      var index = 0
      while index &+ 8 < size {
        if unsafe !sameWord(expected, at: index) { return false }
        index &+= 8
      }
      return unsafe sameWord(expected, at: size &- 8)
    }
    if size >= 4 {
      let first = unsafe unsafeLoadUnaligned(fromByteOffset: 0, as: UInt32.self) | 0x2020_2020
      let last = unsafe unsafeLoadUnaligned(fromByteOffset: size &- 4, as: UInt32.self) | 0x2020_2020
      return unsafe first == expected.loadUnaligned(fromByteOffset: 0, as: UInt32.self)
        && last == expected.loadUnaligned(fromByteOffset: size &- 4, as: UInt32.self)
    }
    for index in 0..<size {
      let byte = unsafe unsafeLoad(fromByteOffset: index, as: UInt8.self) | 0x20
      if unsafe expected.load(fromByteOffset: index, as: UInt8.self) != byte { return false }
    }
    return true
  }

  @inline(__always)
  private func sameWord(_ expected: UnsafeRawPointer, at offset: Int) -> Bool {
    let word = unsafe unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self) | 0x2020_2020_2020_2020
    return unsafe expected.loadUnaligned(fromByteOffset: offset, as: UInt64.self) == word
  }
}
