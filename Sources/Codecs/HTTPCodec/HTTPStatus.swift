import ByteStreams

/// A status code (RFC 9110 §15).
package struct HTTPStatus: RawRepresentable, Hashable, Sendable {
  package let rawValue: UInt16

  /// Any code from 100 to 999.
  package init(rawValue: UInt16) {
    precondition(rawValue >= 100 && rawValue <= 999, "a status code has three digits")
    self.rawValue = rawValue
  }

  package static let `continue` = HTTPStatus(rawValue: 100)
  package static let switchingProtocols = HTTPStatus(rawValue: 101)
  package static let ok = HTTPStatus(rawValue: 200)
  package static let created = HTTPStatus(rawValue: 201)
  package static let accepted = HTTPStatus(rawValue: 202)
  package static let noContent = HTTPStatus(rawValue: 204)
  package static let multiStatus = HTTPStatus(rawValue: 207)
  package static let notModified = HTTPStatus(rawValue: 304)
  package static let badRequest = HTTPStatus(rawValue: 400)
  package static let unauthorized = HTTPStatus(rawValue: 401)
  package static let forbidden = HTTPStatus(rawValue: 403)
  package static let notFound = HTTPStatus(rawValue: 404)
  package static let methodNotAllowed = HTTPStatus(rawValue: 405)
  package static let notAcceptable = HTTPStatus(rawValue: 406)
  package static let requestTimeout = HTTPStatus(rawValue: 408)
  package static let conflict = HTTPStatus(rawValue: 409)
  package static let gone = HTTPStatus(rawValue: 410)
  package static let lengthRequired = HTTPStatus(rawValue: 411)
  package static let preconditionFailed = HTTPStatus(rawValue: 412)
  package static let contentTooLarge = HTTPStatus(rawValue: 413)
  package static let uriTooLong = HTTPStatus(rawValue: 414)
  package static let unsupportedMediaType = HTTPStatus(rawValue: 415)
  package static let expectationFailed = HTTPStatus(rawValue: 417)
  package static let misdirectedRequest = HTTPStatus(rawValue: 421)
  package static let unprocessableContent = HTTPStatus(rawValue: 422)
  package static let tooManyRequests = HTTPStatus(rawValue: 429)
  package static let headerFieldsTooLarge = HTTPStatus(rawValue: 431)
  package static let internalServerError = HTTPStatus(rawValue: 500)
  package static let notImplemented = HTTPStatus(rawValue: 501)
  package static let badGateway = HTTPStatus(rawValue: 502)
  package static let serviceUnavailable = HTTPStatus(rawValue: 503)
  package static let gatewayTimeout = HTTPStatus(rawValue: 504)
  package static let versionNotSupported = HTTPStatus(rawValue: 505)

  /// 1xx: an interim response, sent before the final response (RFC 9110 §15.2).
  package var isInterim: Bool { rawValue < 200 }

  /// Whether a response with this status has no content (RFC 9112 §6.3, rule 1).
  package var forbidsContent: Bool { isInterim || rawValue == 204 || rawValue == 304 }

  /// The status line, CRLF included, or nil for a code without a name here.
  ///
  /// There is a whole line for each code, so that the line is written by a single copy.
  var statusLine: StaticString? {
    switch rawValue {
    case 100: "HTTP/1.1 100 Continue\r\n"
    case 101: "HTTP/1.1 101 Switching Protocols\r\n"
    case 200: "HTTP/1.1 200 OK\r\n"
    case 201: "HTTP/1.1 201 Created\r\n"
    case 202: "HTTP/1.1 202 Accepted\r\n"
    case 204: "HTTP/1.1 204 No Content\r\n"
    case 207: "HTTP/1.1 207 Multi-Status\r\n"
    case 304: "HTTP/1.1 304 Not Modified\r\n"
    case 400: "HTTP/1.1 400 Bad Request\r\n"
    case 401: "HTTP/1.1 401 Unauthorized\r\n"
    case 403: "HTTP/1.1 403 Forbidden\r\n"
    case 404: "HTTP/1.1 404 Not Found\r\n"
    case 405: "HTTP/1.1 405 Method Not Allowed\r\n"
    case 406: "HTTP/1.1 406 Not Acceptable\r\n"
    case 408: "HTTP/1.1 408 Request Timeout\r\n"
    case 409: "HTTP/1.1 409 Conflict\r\n"
    case 410: "HTTP/1.1 410 Gone\r\n"
    case 411: "HTTP/1.1 411 Length Required\r\n"
    case 412: "HTTP/1.1 412 Precondition Failed\r\n"
    case 413: "HTTP/1.1 413 Content Too Large\r\n"
    case 414: "HTTP/1.1 414 URI Too Long\r\n"
    case 415: "HTTP/1.1 415 Unsupported Media Type\r\n"
    case 417: "HTTP/1.1 417 Expectation Failed\r\n"
    case 421: "HTTP/1.1 421 Misdirected Request\r\n"
    case 422: "HTTP/1.1 422 Unprocessable Content\r\n"
    case 429: "HTTP/1.1 429 Too Many Requests\r\n"
    case 431: "HTTP/1.1 431 Request Header Fields Too Large\r\n"
    case 500: "HTTP/1.1 500 Internal Server Error\r\n"
    case 501: "HTTP/1.1 501 Not Implemented\r\n"
    case 502: "HTTP/1.1 502 Bad Gateway\r\n"
    case 503: "HTTP/1.1 503 Service Unavailable\r\n"
    case 504: "HTTP/1.1 504 Gateway Timeout\r\n"
    case 505: "HTTP/1.1 505 HTTP Version Not Supported\r\n"
    default: nil
    }
  }

  /// The reason phrase, such as `Not Found`. Empty for a code without a name here.
  package var reasonPhrase: String {
    guard let line = statusLine?.description else { return "" }
    return String(line.dropFirst("HTTP/1.1 404 ".count).dropLast())
  }
}
