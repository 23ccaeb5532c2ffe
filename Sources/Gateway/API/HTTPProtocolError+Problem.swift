import HTTPCodec

extension HTTPProtocolError {
  /// The setting whose limit was passed; nil where a rule was broken and no setting would help.
  var setting: StaticString? {
    switch self {
    case .requestLineTooLong: "http.request_line_bytes"
    case .tooManyEmptyLines: "http.empty_lines"
    case .headTooLarge: "http.head_bytes"
    case .tooManyFields: "http.fields"
    case .contentTooLarge: "http.body_bytes"
    case .chunkExtensionTooLong: "http.chunk_extension_bytes"
    case .chunkOverheadTooLarge: "http.chunk_overhead_bytes"
    case .trailersTooLarge: "http.trailer_bytes"
    case .tooManyTrailers: "http.trailers"
    case .malformedRequestLine, .malformedMethod, .methodNotSupported, .malformedTarget, .targetFormNotAllowed,
      .malformedVersion, .versionNotSupported, .bareLineFeed, .bareCarriageReturn, .forbiddenByte,
      .whitespaceBeforeColon, .whitespaceBeforeFirstField, .foldedField, .malformedFieldName, .missingColon,
      .repeatedField, .missingHost, .malformedHost, .malformedContentLength, .missingContentLength,
      .repeatedContentLength,
      .contentLengthBesideTransferEncoding, .transferCodingNotSupported, .malformedTransferEncoding,
      .transferEncodingInHTTP10, .malformedChunkSize, .malformedChunkExtension, .missingChunkEnd, .forbiddenTrailer,
      .expectationNotSupported, .truncatedMessage, .malformedStatusLine:
      nil
    }
  }

  /// The problem type of the response. Its status is that of the error.
  var kind: Problem.Kind {
    switch status {
    case .uriTooLong: .uriTooLong
    case .headerFieldsTooLarge: .headerFieldsTooLarge
    case .contentTooLarge: .contentTooLarge
    case .expectationFailed: .expectationFailed
    case .methodNotAllowed: .methodNotAllowed
    case .notImplemented: .unsupportedTransferCoding
    case .versionNotSupported: .unsupportedVersion
    default: .protocolError
    }
  }

  /// For the answer: what was wrong, what would be right, and who set the limit that was passed.
  var detail: String { setting.map { "\(description) The limit is the setting \($0)." } ?? description }
}
