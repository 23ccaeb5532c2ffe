import ByteStreams
import Events
import HTTPCodec
import JSONCodec
import Sessions
import Upstream
import UpstreamProtocol

/// The query parameters of an event for a Socket.IO upstream.
final class EventParameters: Sendable {
  let name: [UInt8]?
  let namespace: [UInt8]?

  init(adding parameter: QueryParameter, _ value: Span<UInt8>, to other: EventParameters?) {
    let value = [UInt8](copying: value)
    name = parameter == .event ? value : other?.name
    namespace = parameter == .namespace ? value : other?.namespace
  }
}

extension EventFormat {
  /// The text of the error for a namespace that is not configured.
  func unknown(namespace: [UInt8], of session: Session) -> String {
    let names = namespaceNames.joined(separator: ", ")
    return
      "namespace '\(namespace.span.excerpt())' is not one of \(session.settingPrefix)\(section).namespaces: use \(names)"
  }
}

/// How the body of a request becomes an event of a Socket.IO upstream. The body is the envelope of the event. With the
/// parameter `event`, the body is the only argument of the event.
struct EventForm {
  let parameters: EventParameters?
  let form: IncomingMessage.Form
  let isJSON: Bool

  /// Throws unless requests with this head can be sent to the session.
  func check(for session: Session) throws(Problem) {
    guard let format = session.upstream.eventFormat else {
      guard parameters == nil else {
        throw Problem(
          .invalidParameter,
          "event and namespace are for Socket.IO upstreams, and session '\(session.name)' has another: leave them out")
      }
      return
    }
    guard let parameters, let name = parameters.name else {
      if parameters != nil {
        throw Problem(
          .invalidParameter, "namespace needs event: add event=NAME, or use the envelope's 'namespace'")
      }
      guard form == .binary else { return }
      throw Problem(
        .unsupportedMediaType,
        "a message to a Socket.IO upstream is an event: name it with ?event=NAME, or send an envelope as application/json, or with type=text"
      )
    }
    if form == .lines {
      throw Problem(
        .invalidParameter, "event is not accepted with a batch, whose lines are envelopes: leave it out")
    }
    do throws(EventFormatError) {
      try format.check(name: name)
    } catch {
      throw Problem(.invalidDocument, error.description)
    }
  }

  /// Reads one event, or one acknowledgement of a client.
  ///
  /// - Parameter limit: the setting `http.body_bytes`.
  func envelope(
    of content: [UInt8], _ format: any EventFormat, limit: Int
  ) throws(Problem) -> EventEnvelope {
    guard let name = parameters?.name else { return try Self.envelope(content.span, format) }
    var parts = EventParts()
    parts.name = name
    if let namespace = parameters?.namespace { parts.namespace = namespace }
    let isText = form != .binary && UTF8StreamValidator.isValid(content.span)
    if content.isEmpty {
      // An empty body means that the event has no argument.
    } else if isJSON {
      guard isText, JSONValidator.isValid(content.span) else {
        throw Problem(.invalidDocument, "the body, which is the argument of the event, is not valid JSON")
      }
      parts.arguments = content
    } else if isText {
      var text = ByteQueue(capacity: content.count + 16)
      text.append(jsonString: content.span)
      // The escaped text may be up to six times as large as the body.
      guard text.count <= limit else {
        throw Problem(
          .contentTooLarge,
          "the text has more than \(limit) bytes as a string of JSON, in which control characters are escaped (the setting http.body_bytes): send less, or other bytes with Content-Type: application/octet-stream"
        )
      }
      parts.arguments = text.copyBytes()
    } else if form == .text {
      throw Problem(
        .invalidText, "a text argument must be UTF-8: send other bytes with Content-Type: application/octet-stream")
    } else {
      guard format.attachments > 0 else {
        throw Problem(.invalidDocument, "\(format.section).attachments is 0: no event may have binary data")
      }
      parts.arguments = Array(#"{"_placeholder":true,"num":0}"#.utf8)
      parts.attachments = [content]
    }
    return .event(parts)
  }

  static func envelope(_ text: Span<UInt8>, _ format: any EventFormat) throws(Problem) -> EventEnvelope {
    guard UTF8StreamValidator.isValid(text) else {
      throw Problem(.invalidText, "an envelope must be UTF-8: JSON has no other encoding")
    }
    do throws(EventFormatError) {
      return try format.envelope(text)
    } catch {
      throw Problem(.invalidDocument, error.description)
    }
  }

  /// `Retry-After`, in seconds, for an event whose namespace has ended. Only the next connection joins the namespace
  /// again.
  private static var endedNamespaceWait: Int { 60 }

  /// Throws if the upstream would not accept the event.
  static func check(_ event: EventContent, for session: Session) throws(Problem) {
    guard let format = session.upstream.eventFormat else { preconditionFailure("an event for another upstream") }
    guard format.joins(event.namespace) else {
      throw Problem(.invalidDocument, format.unknown(namespace: event.namespace, of: session))
    }
    try check(size: event.largestFrame, for: session)
    if let missing = session.upstream.missing(namespace: event.namespace) {
      let reason = missing.reason.map { $0.isEmpty ? "" : ": \($0)" } ?? ""
      let detail = "namespace '\(missing.name)' is not connected (\(missing.state.rawValue)\(reason))"
      // The present connection does not join the namespace again, so it would be useless to repeat the request every
      // second.
      let hasEnded = missing.state == .refused || missing.state == .disconnected
      throw Problem(
        .upstreamDown,
        hasEnded
          ? detail
            + ": the next connection joins it again, for example after PATCH \(session.path)session down and up"
          : detail,
        .retryAfter(hasEnded ? Self.endedNamespaceWait : 1))
    }
  }

  static func check(size: Int, for session: Session) throws(Problem) {
    guard let limit = session.upstream.maximumPayload, size > limit else { return }
    throw Problem(
      .contentTooLarge, "the event has a part of more than \(limit) bytes, the limit of the upstream (its 'maxPayload')"
    )
  }
}
