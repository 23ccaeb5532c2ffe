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
  case contentLengthBesideTransferEncoding
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
      .contentLengthBesideTransferEncoding,
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
      "The request line must be 'METHOD target HTTP/1.1': three parts with one space between, ended by CRLF."
    case .malformedMethod: "The method must be a token such as GET or POST, in capitals as it is defined."
    case .methodNotSupported: "CONNECT is not supported: this server is no proxy."
    case .malformedTarget:
      "The request target has a byte that must be percent-encoded; letters, digits, -._~!$&'()*+,;=:@/?[] and %XX may stand."
    case .targetFormNotAllowed:
      "The request target must be a path that starts with '/', an http:// URL, or '*' with OPTIONS."
    case .malformedVersion: "The request line must end with HTTP/1.1 or HTTP/1.0, in capitals, after one space."
    case .versionNotSupported: "This server speaks HTTP/1.1 and HTTP/1.0 only."
    case .tooManyEmptyLines(let limit): "More than \(limit) empty lines came before the request line."
    case .headTooLarge(let limit): "The head is larger than \(limit) bytes; send fewer or shorter header fields."
    case .tooManyFields(let limit): "The head has more than \(limit) header fields."
    case .bareLineFeed: "A line ended with LF alone; every line must end with CRLF."
    case .bareCarriageReturn: "A CR stood without LF after it; every line must end with CRLF."
    case .forbiddenByte(let byte):
      "Byte \(byte) may not stand in a line of a head; only visible characters, spaces and tabs may."
    case .whitespaceBeforeColon: "White space stood between a field name and its colon; the colon must follow at once."
    case .whitespaceBeforeFirstField: "White space stood before the first header field; a line must start with a name."
    case .foldedField: "A header field was folded over two lines; each must stand on one line."
    case .malformedFieldName: "A header field name must be a token: letters, digits and !#$%&'*+-.^_`|~ only."
    case .missingColon: "A header line has no colon; it must be 'name: value'."
    case .repeatedField(let name): "The field \(name.name) stood more than once; send it once."
    case .missingHost: "An HTTP/1.1 request must have one Host field."
    case .malformedHost:
      "The Host field must be a host name or address with an optional port, such as example.org:8080."
    case .malformedContentLength: "Content-Length must be one decimal number of bytes."
    case .missingContentLength: "A POST of HTTP/1.0 must have a Content-Length, be it 0 (RFC 1945 §8.3)."
    case .repeatedContentLength: "Content-Length stood more than once; send it once."
    case .contentLengthBesideTransferEncoding:
      "Content-Length and Transfer-Encoding stood in one message; send one of them."
    case .transferCodingNotSupported: "The only transfer coding supported is 'chunked', alone."
    case .malformedTransferEncoding: "Transfer-Encoding must be 'chunked', once."
    case .transferEncodingInHTTP10: "Transfer-Encoding does not exist in HTTP/1.0; use Content-Length."
    case .contentTooLarge(let limit): "The content is larger than \(limit) bytes."
    case .malformedChunkSize: "A chunk must start with its size in hexadecimal digits, at most 16, ended by CRLF."
    case .malformedChunkExtension: "A chunk extension must be ';name', ';name=token' or ';name=\"quoted\"'."
    case .chunkExtensionTooLong(let limit): "The extensions of a chunk are longer than \(limit) bytes."
    case .chunkOverheadTooLarge(let limit):
      "Chunk sizes and extensions outweigh the content by more than \(limit) bytes; send larger chunks."
    case .missingChunkEnd: "The data of a chunk was not followed by CRLF: the chunk size is wrong."
    case .trailersTooLarge(let limit): "The trailer section is larger than \(limit) bytes."
    case .tooManyTrailers(let limit): "The trailer section has more than \(limit) fields."
    case .forbiddenTrailer(let name): "The field \(name.name) may not stand in a trailer section; send it in the head."
    case .expectationNotSupported: "The only expectation supported is 100-continue."
    case .truncatedMessage: "The connection ended in the middle of a message."
    case .malformedStatusLine: "A response must start with 'HTTP/1.1', a space and a status code of three digits."
    }
  }
}
