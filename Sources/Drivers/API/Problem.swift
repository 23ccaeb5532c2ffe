import ByteStreams
import HTTPCodec
import JSONCodec

/// An error response in the format of RFC 9457: what was wrong, and what is accepted. `/errors/{type}` explains each
/// kind.
struct Problem: Error {
  enum Kind: CaseIterable {
    case protocolError, uriTooLong, headerFieldsTooLarge, unsupportedTransferCoding, unsupportedVersion
    case expectationFailed, requestTimeout, hostNotAllowed, originNotAllowed, unauthorized, insufficientScope
    case accessNotConfigured
    case notFound, methodNotAllowed
    case invalidParameter, invalidText, invalidDocument, unsupportedMediaType, unsupportedEncoding, contentTooLarge
    case notAcceptable
    case idempotencyKeyInProgress, idempotencyKeyReused
    case queueFull, storeFailed, tooManyBodies, tooManyKeys, upstreamDown, sessionClosed
    case callsNotConfigured, tooManyCalls, replyTimeout, upstreamClosed, acknowledgementGone
    case tooManyRequests
    case consumerConflict, superseded, leaseLost, tooManyConsumers
    case sessionConflict, sessionNotOwned, tooManySessions
    case holderUnavailable, outcomeUnknown
    case shuttingDown

    /// A new kind also needs a section in `docs/errors.md`, and its status in `openapi.yaml`.
    var row: Row {
      switch self {
      case .protocolError: Row("protocol-error", .badRequest, "The request is not valid HTTP")
      case .uriTooLong: Row("uri-too-long", .uriTooLong, "The request line is too long")
      case .headerFieldsTooLarge:
        Row("header-fields-too-large", .headerFieldsTooLarge, "The header fields are too large")
      case .unsupportedTransferCoding:
        Row("unsupported-transfer-coding", .notImplemented, "The transfer coding is not supported")
      case .unsupportedVersion: Row("unsupported-version", .versionNotSupported, "The HTTP version is not supported")
      case .expectationFailed: Row("expectation-failed", .expectationFailed, "The expectation is not supported")
      case .requestTimeout: Row("request-timeout", .requestTimeout, "The request was not received in time", .later)
      case .hostNotAllowed: Row("host-not-allowed", .forbidden, "The Host is not allowed")
      case .originNotAllowed: Row("origin-not-allowed", .forbidden, "The origin is not allowed")
      case .unauthorized: Row("unauthorized", .unauthorized, "The request has no valid credentials")
      case .insufficientScope: Row("insufficient-scope", .forbidden, "The credentials do not allow this")
      case .accessNotConfigured: Row("access-not-configured", .forbidden, "This listener does not serve the API")
      case .notFound: Row("not-found", .notFound, "The resource does not exist")
      case .methodNotAllowed: Row("method-not-allowed", .methodNotAllowed, "The method is not allowed for this path")
      case .invalidParameter: Row("invalid-parameter", .badRequest, "A parameter or header field is not valid")
      case .invalidText: Row("invalid-text", .badRequest, "The message is not valid UTF-8")
      case .invalidDocument: Row("invalid-document", .unprocessableContent, "The document is not valid for this path")
      case .unsupportedMediaType:
        Row("unsupported-media-type", .unsupportedMediaType, "The content type is not supported")
      case .unsupportedEncoding:
        Row(
          "unsupported-encoding", .unsupportedMediaType,
          "The content coding is not supported, or the body does not match it")
      case .contentTooLarge: Row("content-too-large", .contentTooLarge, "The content is too large")
      case .notAcceptable: Row("not-acceptable", .notAcceptable, "No representation is acceptable")
      case .idempotencyKeyInProgress:
        Row("idempotency-key-in-progress", .conflict, "A request with this idempotency key is in progress", .after(1))
      case .idempotencyKeyReused:
        Row("idempotency-key-reused", .unprocessableContent, "The idempotency key belongs to another request")
      case .queueFull: Row("queue-full", .serviceUnavailable, "The queue to the upstream is full", .after(1))
      case .storeFailed: Row("store-failed", .serviceUnavailable, "The store does not work", .after(5))
      case .tooManyBodies:
        Row("too-many-bodies", .serviceUnavailable, "Too many request bodies are being received", .after(1))
      case .tooManyKeys:
        Row("too-many-keys", .serviceUnavailable, "Too many idempotency keys are remembered", .after(1))
      case .upstreamDown: Row("upstream-down", .serviceUnavailable, "The message cannot be sent now", .after(1))
      case .sessionClosed: Row("session-closed", .gone, "The session is closed")
      case .callsNotConfigured: Row("calls-not-configured", .notFound, "The session is not configured for calls")
      case .tooManyCalls: Row("too-many-calls", .serviceUnavailable, "Too many calls wait for their replies", .after(1))
      case .replyTimeout: Row("reply-timeout", .gatewayTimeout, "No reply arrived in time")
      case .upstreamClosed: Row("upstream-closed", .badGateway, "The connection that carried the request has ended")
      case .acknowledgementGone: Row("acknowledgement-gone", .gone, "The acknowledgement cannot be sent any more")
      case .tooManyRequests: Row("too-many-requests", .tooManyRequests, "A limit of this client is reached", .after(1))
      case .consumerConflict: Row("consumer-conflict", .conflict, "The consumer is of another kind")
      case .superseded: Row("superseded", .conflict, "Another receive has taken over")
      case .leaseLost: Row("lease-lost", .conflict, "The lease is not valid")
      case .tooManyConsumers: Row("too-many-consumers", .serviceUnavailable, "Too many consumers", .after(60))
      case .sessionConflict:
        Row("session-conflict", .conflict, "The session is configured, or was created with other settings")
      case .sessionNotOwned: Row("session-not-owned", .forbidden, "The session belongs to another client")
      case .tooManySessions: Row("too-many-sessions", .serviceUnavailable, "Too many sessions", .after(60))
      case .holderUnavailable:
        Row("holder-unavailable", .serviceUnavailable, "The session has no holder at present", .after(1))
      case .outcomeUnknown: Row("outcome-unknown", .badGateway, "The outcome of the request is not known")
      case .shuttingDown: Row("shutting-down", .serviceUnavailable, "The gateway is shutting down", .after(1))
      }
    }

    /// Returns nil unless `name` is the name of a kind.
    init?(_ name: Span<UInt8>) {
      for kind in Kind.allCases where name.equals(kind.row.name) {
        self = kind
        return
      }
      return nil
    }
  }

  /// The properties of all problems of one kind.
  struct Row {
    /// The last segment of the `type` URI, `/errors/{name}`, and the heading of its section in `docs/errors.md`.
    let name: StaticString
    let status: HTTPStatus
    let title: StaticString
    let retry: Retry

    init(_ name: StaticString, _ status: HTTPStatus, _ title: StaticString, _ retry: Retry = .never) {
      self.name = name
      self.status = status
      self.title = title
      self.retry = retry
    }
  }

  /// Whether a client can simply repeat the request later. It cannot if the upstream may already have acted upon the
  /// request, as for a call without a reply: in that case, the client must decide whether to repeat it.
  enum Retry: Equatable {
    case never
    case later
    /// `Retry-After` has this number of seconds, unless the problem has a more precise number.
    case after(Int)
  }

  /// The header field of the response that explains the problem.
  enum Field {
    case retryAfter(Int)
    case challenge(Challenge)
    case allow(Methods)
  }

  let kind: Kind
  var detail: String
  /// The text that replaces `detail` in the log, if the log may contain more than the client may see. It contains no
  /// text from the client.
  var logDetail: String?
  /// The name of the session in the request, if this gateway does not have that session. Another gateway may just have
  /// created it.
  var missingSession: String?
  let field: Field?

  init(_ kind: Kind, _ detail: String, _ field: Field? = nil) {
    self.kind = kind
    self.detail = detail
    if field == nil, case .after(let seconds) = kind.row.retry {
      self.field = .retryAfter(seconds)
    } else {
      self.field = field
    }
  }

  var status: HTTPStatus { kind.row.status }

  func write(requestID: String, into output: inout ByteQueue) {
    let row = kind.row
    output.append("{\"type\":\"/errors/" as StaticString)
    output.append(row.name)
    output.append("\",\"title\":\"" as StaticString)
    output.append(row.title)
    output.append("\",\"status\":" as StaticString)
    output.append(decimal: Int(row.status.rawValue))
    output.append(",\"detail\":" as StaticString)
    output.append(jsonString: detail)
    output.append(row.retry == .never ? ",\"retryable\":false" as StaticString : ",\"retryable\":true")
    output.append(",\"request_id\":" as StaticString)
    output.append(jsonString: requestID)
    output.append("}\n" as StaticString)
  }
}

extension Problem.Kind {
  /// Writes the problem as the result of one message of a batch.
  func writeInBatch(detail: String?, into output: inout ByteQueue) {
    output.append("{\"status\":" as StaticString)
    output.append(decimal: Int(row.status.rawValue))
    output.append(",\"type\":\"/errors/" as StaticString)
    output.append(row.name)
    output.append("\"" as StaticString)
    if let detail {
      output.append(",\"detail\":" as StaticString)
      output.append(jsonString: detail)
    }
    output.append("}" as StaticString)
  }
}
