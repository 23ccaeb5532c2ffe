import ByteStreams
import HTTPCodec
import JSONCodec

/// An error response in the format of RFC 9457: what was wrong, and what is accepted. `/errors/{type}` explains each
/// kind.
struct Problem {
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

    /// The last segment of the `type` URI, `/errors/{name}`, and the heading of its section in `docs/errors.md`.
    var name: StaticString {
      switch self {
      case .protocolError: "protocol-error"
      case .uriTooLong: "uri-too-long"
      case .headerFieldsTooLarge: "header-fields-too-large"
      case .unsupportedTransferCoding: "unsupported-transfer-coding"
      case .unsupportedVersion: "unsupported-version"
      case .requestTimeout: "request-timeout"
      case .hostNotAllowed: "host-not-allowed"
      case .originNotAllowed: "origin-not-allowed"
      case .unauthorized: "unauthorized"
      case .insufficientScope: "insufficient-scope"
      case .accessNotConfigured: "access-not-configured"
      case .notFound: "not-found"
      case .methodNotAllowed: "method-not-allowed"
      case .invalidParameter: "invalid-parameter"
      case .invalidText: "invalid-text"
      case .invalidDocument: "invalid-document"
      case .unsupportedMediaType: "unsupported-media-type"
      case .unsupportedEncoding: "unsupported-encoding"
      case .notAcceptable: "not-acceptable"
      case .contentTooLarge: "content-too-large"
      case .queueFull: "queue-full"
      case .storeFailed: "store-failed"
      case .tooManyBodies: "too-many-bodies"
      case .tooManyKeys: "too-many-keys"
      case .idempotencyKeyInProgress: "idempotency-key-in-progress"
      case .idempotencyKeyReused: "idempotency-key-reused"
      case .upstreamDown: "upstream-down"
      case .sessionClosed: "session-closed"
      case .callsNotConfigured: "calls-not-configured"
      case .tooManyCalls: "too-many-calls"
      case .replyTimeout: "reply-timeout"
      case .upstreamClosed: "upstream-closed"
      case .acknowledgementGone: "acknowledgement-gone"
      case .expectationFailed: "expectation-failed"
      case .tooManyRequests: "too-many-requests"
      case .consumerConflict: "consumer-conflict"
      case .superseded: "superseded"
      case .leaseLost: "lease-lost"
      case .tooManyConsumers: "too-many-consumers"
      case .sessionConflict: "session-conflict"
      case .sessionNotOwned: "session-not-owned"
      case .tooManySessions: "too-many-sessions"
      case .holderUnavailable: "holder-unavailable"
      case .outcomeUnknown: "outcome-unknown"
      }
    }

    var title: StaticString {
      switch self {
      case .protocolError: "The request is not valid HTTP"
      case .uriTooLong: "The request line is too long"
      case .headerFieldsTooLarge: "The header fields are too large"
      case .unsupportedTransferCoding: "The transfer coding is not supported"
      case .unsupportedVersion: "The HTTP version is not supported"
      case .requestTimeout: "The request was not received in time"
      case .hostNotAllowed: "The Host is not allowed"
      case .originNotAllowed: "The origin is not allowed"
      case .unauthorized: "The request has no valid credentials"
      case .insufficientScope: "The credentials do not allow this"
      case .accessNotConfigured: "This listener does not serve the API"
      case .notFound: "The resource does not exist"
      case .methodNotAllowed: "The method is not allowed for this path"
      case .invalidParameter: "A parameter or header field is not valid"
      case .invalidText: "The message is not valid UTF-8"
      case .invalidDocument: "The document is not valid for this path"
      case .unsupportedMediaType: "The content type is not supported"
      case .notAcceptable: "No representation is acceptable"
      case .unsupportedEncoding: "The content coding is not supported, or the body does not match it"
      case .contentTooLarge: "The content is too large"
      case .queueFull: "The queue to the upstream is full"
      case .storeFailed: "The store does not work"
      case .tooManyBodies: "Too many request bodies are being received"
      case .tooManyKeys: "Too many idempotency keys are remembered"
      case .idempotencyKeyInProgress: "A request with this idempotency key is in progress"
      case .idempotencyKeyReused: "The idempotency key belongs to another request"
      case .upstreamDown: "The message cannot be sent now"
      case .sessionClosed: "The session is closed"
      case .callsNotConfigured: "The session is not configured for calls"
      case .tooManyCalls: "Too many calls wait for their replies"
      case .replyTimeout: "No reply arrived in time"
      case .upstreamClosed: "The connection that carried the request has ended"
      case .acknowledgementGone: "The acknowledgement cannot be sent any more"
      case .expectationFailed: "The expectation is not supported"
      case .tooManyRequests: "A limit of this client is reached"
      case .consumerConflict: "The consumer is of another kind"
      case .superseded: "Another receive has taken over"
      case .leaseLost: "The lease is not valid"
      case .tooManyConsumers: "Too many consumers"
      case .sessionConflict: "The session is another one"
      case .sessionNotOwned: "The session belongs to another client"
      case .tooManySessions: "Too many sessions"
      case .holderUnavailable: "No gateway holds the session at present"
      case .outcomeUnknown: "The outcome of the request is not known"
      }
    }

    var status: HTTPStatus {
      switch self {
      case .protocolError, .invalidParameter, .invalidText: .badRequest
      case .invalidDocument, .idempotencyKeyReused: .unprocessableContent
      case .idempotencyKeyInProgress, .consumerConflict, .superseded, .leaseLost,
        .sessionConflict:
        .conflict
      case .uriTooLong: .uriTooLong
      case .headerFieldsTooLarge: .headerFieldsTooLarge
      case .unsupportedTransferCoding: .notImplemented
      case .unsupportedVersion: .versionNotSupported
      case .requestTimeout: .requestTimeout
      case .unauthorized: .unauthorized
      case .hostNotAllowed, .originNotAllowed, .insufficientScope, .accessNotConfigured, .sessionNotOwned: .forbidden
      case .notFound, .callsNotConfigured: .notFound
      case .methodNotAllowed: .methodNotAllowed
      case .unsupportedMediaType, .unsupportedEncoding: .unsupportedMediaType
      case .notAcceptable: .notAcceptable
      case .contentTooLarge: .contentTooLarge
      case .queueFull, .storeFailed, .tooManyBodies, .tooManyKeys, .tooManyCalls, .tooManyConsumers, .tooManySessions,
        .upstreamDown, .holderUnavailable:
        .serviceUnavailable
      case .upstreamClosed, .outcomeUnknown: .badGateway
      case .replyTimeout: .gatewayTimeout
      case .sessionClosed, .acknowledgementGone: .gone
      case .expectationFailed: .expectationFailed
      case .tooManyRequests: .tooManyRequests
      }
    }

    /// Returns nil unless `name` is the name of a kind.
    init?(_ name: Span<UInt8>) {
      for kind in Kind.allCases where name.equals(kind.name) {
        self = kind
        return
      }
      return nil
    }

    /// Whether the same request may succeed later.
    var isRetryable: Bool {
      switch self {
      case .requestTimeout, .idempotencyKeyInProgress, .queueFull, .storeFailed, .tooManyBodies, .tooManyKeys,
        .tooManyCalls,
        .tooManyConsumers, .tooManySessions, .upstreamDown, .tooManyRequests, .holderUnavailable:
        true
      case .protocolError, .uriTooLong, .headerFieldsTooLarge, .unsupportedTransferCoding, .unsupportedVersion,
        .expectationFailed, .hostNotAllowed, .originNotAllowed, .unauthorized, .insufficientScope,
        .accessNotConfigured, .notFound, .methodNotAllowed, .invalidParameter, .invalidText, .invalidDocument,
        .unsupportedMediaType,
        .unsupportedEncoding, .contentTooLarge,
        .idempotencyKeyReused, .notAcceptable, .sessionClosed, .consumerConflict, .superseded, .leaseLost,
        .callsNotConfigured, .replyTimeout, .upstreamClosed, .acknowledgementGone, .sessionConflict, .sessionNotOwned,
        .outcomeUnknown:
        // The upstream may have acted upon a call without a reply. The client must decide whether to repeat it.
        false
      }
    }
  }

  let kind: Kind
  let detail: String
  /// Replaces `detail` in the log if the client must not see all of it. Contains nothing from the client.
  var logDetail: String?
  /// The value of `Allow`, for 405.
  var allow: StaticString?
  /// The value of `WWW-Authenticate`, for 401, and for 403 if other credentials would help.
  var challenge: Challenge?
  /// The value of `Retry-After` in seconds, for 429 and 503.
  var retryAfter: Int?

  init(_ kind: Kind, detail: String, allow: StaticString? = nil, challenge: Challenge? = nil, retryAfter: Int? = nil) {
    self.kind = kind
    self.detail = detail
    self.allow = allow
    self.challenge = challenge
    self.retryAfter = retryAfter
  }

  var status: HTTPStatus { kind.status }

  func write(requestID: String, into output: inout ByteQueue) {
    output.append("{\"type\":\"/errors/" as StaticString)
    output.append(kind.name)
    output.append("\",\"title\":\"" as StaticString)
    output.append(kind.title)
    output.append("\",\"status\":" as StaticString)
    output.append(decimal: Int(status.rawValue))
    output.append(",\"detail\":" as StaticString)
    output.append(jsonString: detail)
    output.append(kind.isRetryable ? ",\"retryable\":true" as StaticString : ",\"retryable\":false")
    output.append(",\"request_id\":" as StaticString)
    output.append(jsonString: requestID)
    output.append("}\n" as StaticString)
  }
}

extension Problem.Kind {
  /// Writes the problem as the result of one message of a batch.
  func writeInBatch(detail: String?, into output: inout ByteQueue) {
    output.append("{\"status\":" as StaticString)
    output.append(decimal: Int(status.rawValue))
    output.append(",\"type\":\"/errors/" as StaticString)
    output.append(name)
    output.append("\"" as StaticString)
    if let detail {
      output.append(",\"detail\":" as StaticString)
      output.append(jsonString: detail)
    }
    output.append("}" as StaticString)
  }
}

/// A problem found while a request is read or served.
struct ProblemError: Error {
  let problem: Problem
  /// The name of a session that this gateway does not know, although another gateway may just have created it.
  var missingSession: String?

  init(_ problem: Problem) { self.problem = problem }
  init(_ kind: Problem.Kind, _ detail: String) { problem = Problem(kind, detail: detail) }
}
