/// A violation of HTTP by the peer, with the status code for it and a sentence that says what was wrong and what is accepted.
///
/// After such an error nothing more can be read from the connection, because the start of the next message is unknown. Send one
/// response with `Connection: close`, and close.
package enum HTTPProtocolError: Error, Equatable, Sendable {
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
    case .malformedRequestLine, .malformedMethod, .malformedTarget, .targetFormNotAllowed, .malformedVersion,
      .tooManyEmptyLines, .bareLineFeed, .bareCarriageReturn, .forbiddenByte, .whitespaceBeforeColon,
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
  /// What was wrong and what is accepted. Contains nothing that the peer sent except the value of a byte.
  package var description: String {
    switch self {
    case .requestLineTooLong(let limit): "The request line is longer than \(limit) bytes; use a shorter target."
    case .malformedRequestLine:
      "The request line must be 'METHOD target HTTP/1.1': three parts with one space between, followed by CRLF."
    case .malformedMethod: "The method must be a token such as GET or POST, in capital letters."
    case .methodNotSupported: "CONNECT is not supported: this server is not a proxy."
    case .malformedTarget:
      "The request target contains a byte that must be percent-encoded; allowed are letters, digits, -._~!$&'()*+,;=:@/?[] and %XX."
    case .targetFormNotAllowed:
      "The request target must be a path that starts with '/', an http:// URL, or '*' with OPTIONS."
    case .malformedVersion: "The request line must end with HTTP/1.1 or HTTP/1.0, in capital letters, after one space."
    case .versionNotSupported: "The HTTP version is not supported; use HTTP/1.1 or HTTP/1.0."
    case .tooManyEmptyLines(let limit):
      "More than \(limit) empty lines precede the request line; send the request line first."
    case .headTooLarge(let limit): "The head is larger than \(limit) bytes; send fewer or shorter header fields."
    case .tooManyFields(let limit): "The head has more than \(limit) header fields; send fewer."
    case .bareLineFeed: "A line ends with LF alone; every line must end with CRLF."
    case .bareCarriageReturn: "A CR is not followed by LF; every line must end with CRLF."
    case .forbiddenByte(let byte):
      "Byte \(byte) is not allowed in a line of a head; use only visible characters, spaces and tabs."
    case .whitespaceBeforeColon:
      "There is whitespace between a field name and its colon; the colon must follow the name directly."
    case .whitespaceBeforeFirstField:
      "There is whitespace before the first header field; a line must start with the field name."
    case .foldedField: "A header field is folded over two lines; each field must be on one line."
    case .malformedFieldName: "A header field name must be a token: letters, digits and !#$%&'*+-.^_`|~ only."
    case .missingColon: "A header field line has no colon; it must be 'name: value'."
    case .repeatedField(let name): "The field \(name.name) is repeated; send it once."
    case .missingHost: "An HTTP/1.1 request must have one Host field."
    case .malformedHost:
      "The Host field must be a host name or address with an optional port, such as example.org:8080."
    case .malformedContentLength: "Content-Length must be one decimal number of bytes."
    case .missingContentLength: "An HTTP/1.0 POST must have a Content-Length, even if it is 0 (RFC 1945 §8.3)."
    case .repeatedContentLength: "Content-Length is repeated; send it once."
    case .contentLengthWithTransferEncoding:
      "The message has both Content-Length and Transfer-Encoding; send one of them."
    case .transferCodingNotSupported: "The transfer coding is not supported; use 'chunked' alone."
    case .malformedTransferEncoding: "Transfer-Encoding must be 'chunked', once."
    case .transferEncodingInHTTP10: "Transfer-Encoding does not exist in HTTP/1.0; use Content-Length."
    case .contentTooLarge(let limit): "The content is larger than \(limit) bytes; send less."
    case .malformedChunkSize: "A chunk must start with its size in hexadecimal digits, at most 16, followed by CRLF."
    case .malformedChunkExtension: "A chunk extension must be ';name', ';name=token' or ';name=\"quoted\"'."
    case .chunkExtensionTooLong(let limit): "The extensions of a chunk are longer than \(limit) bytes; omit them."
    case .chunkOverheadTooLarge(let limit):
      "Chunk sizes and extensions outweigh the content by more than \(limit) bytes; send larger chunks."
    case .missingChunkEnd: "The data of a chunk is not followed by CRLF; the chunk size must be the length of the data."
    case .trailersTooLarge(let limit):
      "The trailer section is larger than \(limit) bytes; send fewer or shorter trailer fields."
    case .tooManyTrailers(let limit): "The trailer section has more than \(limit) fields; send fewer."
    case .forbiddenTrailer(let name): "The field \(name.name) is not allowed in a trailer section; send it in the head."
    case .expectationNotSupported: "The expectation is not supported; the only one supported is 100-continue."
    case .truncatedMessage: "The connection ended in the middle of a message; send all of it."
    case .malformedStatusLine: "A response must start with 'HTTP/1.1', a space and a status code of three digits."
    }
  }
}
