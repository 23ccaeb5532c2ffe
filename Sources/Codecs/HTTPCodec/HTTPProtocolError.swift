/// A violation of HTTP by the peer, with the status code for it and a text that says what was wrong and what is
/// accepted.
///
/// After such an error no more requests can be read from the connection, because it is unknown where the next message
/// begins. The server must send one response with `Connection: close`, and close the connection.
package enum HTTPProtocolError: Error, Equatable, Sendable {
  // Other protocols, where a request should begin.
  case tlsHandshake
  case proxyHeader

  // The request line (RFC 9112 §3).
  case requestLineTooLong(limit: Int)
  case malformedRequestLine
  case malformedMethod
  case methodNotSupported
  case malformedTarget
  case targetFormNotAllowed
  case malformedVersion
  case versionNotSupported
  case tooManyEmptyLines(limit: Int)

  // Lines and fields (RFC 9112 §2.2, §5).
  case headTooLarge(limit: Int)
  case tooManyFields(limit: Int)
  case bareLineFeed
  case bareCarriageReturn
  case forbiddenByte(UInt8)
  case whitespaceBeforeColon
  case whitespaceBeforeFirstField
  case foldedField
  case malformedFieldName
  case missingColon
  case repeatedField(HTTPFieldName)
  case missingHost
  case malformedHost

  // Framing (RFC 9112 §6, §7).
  case malformedContentLength
  case missingContentLength
  case repeatedContentLength
  case contentLengthWithTransferEncoding
  case transferCodingNotSupported
  case malformedTransferEncoding
  case transferEncodingInHTTP10
  case contentTooLarge(limit: Int)
  case malformedChunkSize
  case malformedChunkExtension
  case chunkExtensionTooLong(limit: Int)
  case chunkOverheadTooLarge(limit: Int)
  case missingChunkEnd
  case trailersTooLarge(limit: Int)
  case tooManyTrailers(limit: Int)
  case forbiddenTrailer(HTTPFieldName)
  case expectationNotSupported
  case truncatedMessage

  // Responses (RFC 9112 §4).
  case malformedStatusLine

  /// The status code of the response. `malformedStatusLine`, which concerns an upstream's response, is 502.
  package var status: HTTPStatus {
    switch self {
    case .requestLineTooLong: .uriTooLong
    case .headTooLarge, .tooManyFields, .trailersTooLarge, .tooManyTrailers: .headerFieldsTooLarge
    case .methodNotSupported: .methodNotAllowed
    case .transferCodingNotSupported: .notImplemented
    case .versionNotSupported: .versionNotSupported
    case .contentTooLarge, .chunkExtensionTooLong, .chunkOverheadTooLarge: .contentTooLarge
    case .expectationNotSupported: .expectationFailed
    case .malformedStatusLine: .badGateway
    case .tlsHandshake, .proxyHeader, .malformedRequestLine, .malformedMethod, .malformedTarget, .targetFormNotAllowed,
      .malformedVersion, .tooManyEmptyLines, .bareLineFeed, .bareCarriageReturn, .forbiddenByte, .whitespaceBeforeColon,
      .whitespaceBeforeFirstField, .foldedField, .malformedFieldName, .missingColon, .repeatedField, .missingHost,
      .malformedHost, .malformedContentLength, .missingContentLength, .repeatedContentLength,
      .contentLengthWithTransferEncoding,
      .malformedTransferEncoding, .transferEncodingInHTTP10, .malformedChunkSize, .malformedChunkExtension,
      .missingChunkEnd, .forbiddenTrailer, .truncatedMessage:
      .badRequest
    }
  }
}

extension HTTPProtocolError: CustomStringConvertible {
  /// What was wrong and what is accepted. Of the bytes that the peer has sent, the text contains at most the value of
  /// one byte.
  package var description: String {
    switch self {
    case .tlsHandshake:
      "a TLS handshake arrived where a request was expected: use http:// for this port, or https:// with a port for HTTPS"
    case .proxyHeader:
      "a header of the PROXY protocol arrived where a request was expected: configure the proxy to send no such header, or set http.proxy_protocol"
    case .requestLineTooLong(let limit): "the request line is longer than \(limit) bytes: use a shorter target"
    case .malformedRequestLine:
      "the request line is malformed: it must be 'METHOD target HTTP/1.1', separated by single spaces and ended by CRLF"
    case .malformedMethod: "the method is malformed: it must be a token such as GET or POST, in capitals"
    case .methodNotSupported: "CONNECT is not supported: this server is not a proxy"
    case .malformedTarget:
      "the request target contains a byte that must be percent-encoded: use letters, digits, -._~!$&'()*+,;=:@/?[] and %XX"
    case .targetFormNotAllowed:
      "the form of the request target is not allowed: use a path that begins with '/', an http:// URL, or '*' with OPTIONS"
    case .malformedVersion: "the HTTP version is malformed: use HTTP/1.1 or HTTP/1.0, in capitals, after one space"
    case .versionNotSupported: "the HTTP version is not supported: use HTTP/1.1 or HTTP/1.0"
    case .tooManyEmptyLines(let limit): "more than \(limit) empty lines precede the request line: send none"
    case .headTooLarge(let limit): "the head is larger than \(limit) bytes: send fewer or shorter header fields"
    case .tooManyFields(let limit): "the head has more than \(limit) header fields: send fewer"
    case .bareLineFeed: "a line ends with LF only: every line must end with CRLF"
    case .bareCarriageReturn: "CR is not followed by LF: every line must end with CRLF"
    case .forbiddenByte(let byte):
      "byte \(byte) is not allowed in a line of the head: use visible characters, spaces and tabs"
    case .whitespaceBeforeColon: "whitespace between a field name and its colon is not allowed: remove it"
    case .whitespaceBeforeFirstField:
      "whitespace before the first header field is not allowed: a line must begin with a field name"
    case .foldedField: "a header field is folded over several lines: send it on one line"
    case .malformedFieldName: "a field name is malformed: use letters, digits and !#$%&'*+-.^_`|~"
    case .missingColon: "a header line has no colon: it must be 'name: value'"
    case .repeatedField(let name): "\(name.name) is repeated: send it once"
    case .missingHost: "Host is missing: an HTTP/1.1 request must have one"
    case .malformedHost:
      "Host is malformed: use a host name or address with an optional port, such as example.org:8080"
    case .malformedContentLength: "Content-Length is malformed: use one decimal number of bytes"
    case .missingContentLength: "Content-Length is missing: a POST with HTTP/1.0 must have one, even if it is 0"
    case .repeatedContentLength: "Content-Length is repeated: send it once"
    case .contentLengthWithTransferEncoding:
      "the message has both Content-Length and Transfer-Encoding: send only one of them"
    case .transferCodingNotSupported: "the transfer coding is not supported: use only 'chunked'"
    case .malformedTransferEncoding: "Transfer-Encoding is malformed: use 'chunked', once"
    case .transferEncodingInHTTP10: "Transfer-Encoding does not exist in HTTP/1.0: use Content-Length"
    case .contentTooLarge(let limit): "the body is larger than \(limit) bytes: send less"
    case .malformedChunkSize:
      "a chunk size is malformed: use at most 16 hexadecimal digits, ended by CRLF"
    case .malformedChunkExtension:
      "a chunk extension is malformed: it must be ';name', ';name=token' or ';name=\"quoted\"'"
    case .chunkExtensionTooLong(let limit): "the extensions of a chunk are longer than \(limit) bytes: omit them"
    case .chunkOverheadTooLarge(let limit):
      "the chunk framing (sizes and extensions) outweighs the data by more than \(limit) bytes: send larger chunks"
    case .missingChunkEnd: "the data of a chunk is not followed by CRLF: the chunk size must be the length of the data"
    case .trailersTooLarge(let limit): "the trailer section is larger than \(limit) bytes: send fewer or shorter fields"
    case .tooManyTrailers(let limit): "the trailer section has more than \(limit) fields: send fewer"
    case .forbiddenTrailer(let name): "\(name.name) is not allowed in a trailer section: send it in the head"
    case .expectationNotSupported: "the expectation is not supported: use 100-continue"
    case .truncatedMessage: "the connection ended in the middle of a message: send all of it"
    case .malformedStatusLine:
      "the status line is malformed: it must be 'HTTP/1.1', a space and a three-digit status code"
    }
  }
}
