import ByteStreams
import HTTPCodec

/// The media types of responses.
enum Representation: UInt8 {
  case json
  /// One message per line.
  case lines
  /// Server-sent events.
  case events
  case text
  /// The payload of one message.
  case bytes
  case html
  case yaml

  /// The media type, in lower case.
  private var name: (type: StaticString, subtype: StaticString) {
    switch self {
    case .json: ("application", "json")
    case .lines: ("application", "x-ndjson")
    case .events: ("text", "event-stream")
    case .text: ("text", "plain")
    case .bytes: ("application", "octet-stream")
    case .html: ("text", "html")
    case .yaml: ("application", "yaml")
    }
  }

  /// The value of `Content-Type`.
  var contentType: StaticString {
    switch self {
    case .json: "application/json"
    case .lines: "application/x-ndjson"
    // The charset is stated although the format is always UTF-8, since some clients read text without a charset as
    // Latin-1.
    case .events: "text/event-stream; charset=utf-8"
    case .text: .plainText
    case .bytes: "application/octet-stream"
    case .html: "text/html; charset=utf-8"
    case .yaml: "application/yaml"
    }
  }

  /// Returns the representation that the client prefers. If the client prefers several equally, returns the first of
  /// them. Throws 406 if the client accepts none.
  static func negotiate(
    _ request: borrowing HTTPRequestHead, _ offered: [Representation], note: String = ""
  ) throws(Problem) -> Representation {
    var best: (representation: Representation, quality: Int)?
    for representation in offered {
      // A stream must be requested by its name: a client that gets a stream without expecting one would wait for its
      // end, for minutes.
      let quality = request.fields.quality(
        of: representation.name.type, representation.name.subtype, byName: representation == .events)
      if quality > best?.quality ?? 0 { best = (representation, quality) }
    }
    if let best { return best.representation }
    let names = offered.map { "\($0.name.type)/\($0.name.subtype)" }.joined(separator: ", ")
    throw Problem(
      .notAcceptable,
      "Accept '\(request.fields.first(.accept)?.excerpt() ?? "")' allows nothing that \(request.methodBytes.excerpt()) \(request.path.excerpt()) responds with: use \(names)\(note), or */*"
    )
  }

  /// Returns the content coding of a response. Throws 406 if the client accepts none.
  static func coding(of request: borrowing HTTPRequestHead) throws(Problem) -> HTTPAcceptedCodings {
    guard request.fields.contains(.acceptEncoding) else { return .identity }
    let coding = HTTPAcceptedCodings(request.fields)
    guard coding != .none else {
      throw Problem(
        .notAcceptable,
        "Accept-Encoding '\(request.fields.first(.acceptEncoding)?.excerpt() ?? "")' allows no coding: use gzip or identity"
      )
    }
    // The response to HEAD has the header fields of an uncompressed response.
    return request.method == .head ? .identity : coding
  }
}
