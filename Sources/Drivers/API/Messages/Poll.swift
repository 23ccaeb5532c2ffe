import ByteStreams
import HTTPCodec
import Inbox
import Sessions

/// A `GET /v1/messages` with its position resolved.
struct Poll {
  let session: Session
  /// The position from which the poll reads. With a filter, it also advances past pushes that do not match.
  var start: ReadStart
  let options: PollOptions
}

/// The parameters of a poll, apart from its position. The response to the poll depends on all of them.
///
/// One value is stored per held poll, so its members are small. The maximums of the settings, a day and 1 GiB, fit into
/// these members.
struct PollOptions: Equatable {
  var limit: Int32
  var maxBytes: Int32
  /// The parameter `wait`, in milliseconds.
  var wait: Int32
  /// The query parameters of the request, for `Link`.
  var given = QueryParameter.Names.none
  /// Whether the position is from `If-None-Match`, so that the response can be 304.
  var isConditional = false
  var representation = Representation.json
  var coding: HTTPAcceptedCodings
  var filter: TopicFilter?
}

/// The header fields of a poll's response that state a position.
enum PollFields {
  /// Writes `Gateway-Cursor`, `ETag` and `Link`. The link has the parameters of the request, so a client can follow it
  /// without knowing them.
  ///
  /// - Parameter cursor: the position after the response.
  static func write(_ cursor: Span<UInt8>, of session: Session, _ options: PollOptions, into fields: inout ByteQueue) {
    fields.append("Vary: Accept, Accept-Encoding\r\nGateway-Cursor: " as StaticString)
    fields.append(cursor)
    fields.append("\r\nETag: W/\"" as StaticString)
    fields.append(cursor)
    fields.append("\"\r\nLink: <" as StaticString)
    fields.append(session.path)
    fields.append("messages?cursor=" as StaticString)
    fields.append(cursor)
    if options.given.contains(.wait) {
      fields.append("&wait=" as StaticString)
      fields.append(decimal: Int(options.wait))
      fields.append("ms" as StaticString)
    }
    if options.given.contains(.limit) {
      fields.append("&limit=" as StaticString)
      fields.append(decimal: Int(options.limit))
    }
    if options.given.contains(.maxBytes) {
      fields.append("&max_bytes=" as StaticString)
      fields.append(decimal: Int(options.maxBytes))
    }
    // Only topics that the request names are written. The topics of the grant apply to the next poll, too, without
    // being in the link.
    if options.given.contains(.topic) { options.filter?.writeTopics(into: &fields) }
    if options.given.contains(.namespace) { options.filter?.writeNamespaces(into: &fields) }
    fields.append(">; rel=\"next\"\r\n" as StaticString)
  }

  /// Writes `Gateway-Gap`, a dictionary of RFC 8941: `missed=12, reason=retention`, and with several reasons
  /// `reasons=(retention upstream)`.
  static func write(_ gap: Gap, into fields: inout ByteQueue) {
    fields.append("Gateway-Gap: missed=" as StaticString)
    if let missed = gap.missed { fields.append(decimal: missed) } else { fields.append("null" as StaticString) }
    fields.append(", reason=" as StaticString)
    fields.append(gap.reasons[0].name)
    if gap.reasons.count > 1 {
      fields.append(", reasons=(" as StaticString)
      for (index, reason) in gap.reasons.enumerated() {
        if index > 0 { fields.append(" " as StaticString) }
        fields.append(reason.name)
      }
      fields.append(")" as StaticString)
    }
    fields.append("\r\n" as StaticString)
  }
}

extension Gap.Reason {
  /// The name in a response.
  var name: StaticString {
    switch self {
    case .restart: "restart"
    case .retention: "retention"
    case .upstream: "upstream"
    case .store: "store"
    }
  }
}
