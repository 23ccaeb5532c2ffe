import ByteStreams
import HTTPCodec
import HTTPServer

extension Problem {
  /// The problem for a request that the server refuses itself, before the application gets it.
  init(_ refusal: HTTPServerRefusal, _ settings: HTTPServerSettings) {
    switch refusal {
    case .malformed(let error):
      self.init(
        error.kind, error.detail, error == .methodNotSupported ? .allow(.all) : nil)
    case .slowHead:
      self.init(
        .requestTimeout,
        "the request head was not received within \(settings.headTimeout.text) (the setting http.head_timeout): send it without pauses"
      )
    case .slowBody(let received):
      self.init(
        .requestTimeout,
        "after \(received) bytes, the request body paused for \(settings.bodyTimeout.text) (the setting http.body_timeout) or was slower than \(settings.bodyMinimumRate) bytes per second (http.body_minimum_rate): send it without pauses"
      )
    case .tooManyBodies:
      self.init(
        .tooManyBodies,
        "the request bodies received so far, of all clients together, exceed \(settings.pendingBodyBytes) bytes (the setting http.pending_body_bytes): try again after the time in Retry-After"
      )
    case .slowPreparation:
      self.init(
        .tooManyBodies,
        "the large bodies of other requests have taken all the time in which this one could be read: try again after the time in Retry-After"
      )
    }
  }
}

extension HTTPProtocolError {
  /// The setting whose limit was exceeded; nil for a violation that does not depend on a setting.
  var setting: StaticString? {
    switch self {
    case .proxyHeader: "http.proxy_protocol"
    case .requestLineTooLong: "http.request_line_bytes"
    case .tooManyEmptyLines: "http.empty_lines"
    case .headTooLarge: "http.head_bytes"
    case .tooManyFields: "http.fields"
    case .contentTooLarge: "http.body_bytes"
    case .chunkExtensionTooLong: "http.chunk_extension_bytes"
    case .chunkOverheadTooLarge: "http.chunk_overhead_bytes"
    case .trailersTooLarge: "http.trailer_bytes"
    case .tooManyTrailers: "http.trailers"
    case .tlsHandshake, .malformedRequestLine, .malformedMethod, .methodNotSupported, .malformedTarget,
      .targetFormNotAllowed, .malformedVersion, .versionNotSupported, .bareLineFeed, .bareCarriageReturn,
      .forbiddenByte,
      .whitespaceBeforeColon, .whitespaceBeforeFirstField, .foldedField, .malformedFieldName, .missingColon,
      .repeatedField, .missingHost, .malformedHost, .malformedContentLength, .missingContentLength,
      .repeatedContentLength,
      .contentLengthWithTransferEncoding, .transferCodingNotSupported, .malformedTransferEncoding,
      .transferEncodingInHTTP10, .malformedChunkSize, .malformedChunkExtension, .missingChunkEnd, .forbiddenTrailer,
      .expectationNotSupported, .truncatedMessage, .malformedStatusLine:
      nil
    }
  }

  /// The problem type of the response. It has the same status as the error.
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

  /// The detail of the response: what was wrong, what is accepted, and the setting whose limit was exceeded.
  var detail: String { setting.map { "\(description) (the setting \($0))" } ?? description }
}
