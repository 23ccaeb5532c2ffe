import Access
import ByteStreams
import Events
import HTTPCodec
import Inbox
import Sessions
import Upstream
import UpstreamProtocol

/// The parameters of a `GET /v1/messages`, with the limits of the settings applied.
struct PollParameters {
  private(set) var start = StartingPoint.latest
  /// How long to hold the request; the lifetime of a stream.
  private(set) var wait: TimeSpan
  private(set) var options: PollOptions
  /// The format of a stream; nil for a poll.
  private(set) var streamFormat: StreamFormat?

  init(
    _ request: borrowing HTTPRequestHead, _ settings: APISettings.Delivery,
    _ coding: HTTPAcceptedCodings = .identity, for grant: Grant?
  ) throws(Problem) {
    wait = settings.wait
    options = PollOptions(
      limit: Int32(settings.limit), maxBytes: Int32(settings.answerBytes), wait: 0, coding: coding)
    if let preferred = WaitParameter.preference(of: request) { wait = preferred }
    try QueryParameter.forEach(of: request, accepting: ReceiveMessages.parameters) { parameter, value throws(Problem) in
      try read(parameter, value, settings)
      if parameter == .topic { try grant?.checkTopics(of: value) }
    }
    // A request that names namespaces but no topics must not get topics that the grant does not allow.
    if let granted = grant?.topicFilter { options.filter = (options.filter ?? TopicFilter()).within(granted) }
    if options.given.contains(.stream) || !request.fields.acceptsAllMediaTypes {
      options.representation = try Self.representation(request, options)
    }
    streamFormat = options.streamFormat
    guard streamFormat == nil else {
      try readStream(request, settings)
      return
    }
    for parameter in [QueryParameter.events, .data] where options.given.contains(parameter) {
      throw Problem(
        .invalidParameter,
        "\(parameter.name) is a parameter of streams: use it with Accept: text/event-stream, or with stream=1")
    }
    if request.fields.contains(.ifNoneMatch), !options.given.statesPosition { readValidator(of: request) }
    if request.method == .head {
      // HEAD has no content (RFC 9110 §9.3.2), so it can only return the latest position, and does so at once.
      (start, wait, options.isConditional) = (.latest, .zero, false)
    }
    wait = WaitParameter.granted(wait, for: request, maximum: settings.maximumWait)
  }

  private static func representation(
    _ request: borrowing HTTPRequestHead, _ options: PollOptions
  ) throws(Problem) -> Representation {
    if options.given.contains(.stream) {
      // A request without Accept gets JSON, which is not a stream.
      guard request.fields.acceptsAllMediaTypes else {
        return try Representation.negotiate(request, [.lines, .events])
      }
      throw Problem(
        .invalidParameter, "stream=1 needs a format: use Accept: application/x-ndjson, or Accept: text/event-stream")
    }
    if options.limit == 1 { return try Representation.negotiate(request, [.json, .lines, .text, .bytes, .events]) }
    return try Representation.negotiate(
      request, [.json, .lines, .events], note: ", with limit=1 also text/plain and application/octet-stream")
  }

  /// Reads the other parameters of a stream.
  private mutating func readStream(
    _ request: borrowing HTTPRequestHead, _ settings: APISettings.Delivery
  ) throws(Problem) {
    for parameter in [QueryParameter.wait, .limit, .maxBytes] where options.given.contains(parameter) {
      throw Problem(
        .invalidParameter,
        "\(parameter.name) is a parameter of polls: leave it out, since a stream sends all that follows")
    }
    // When EventSource reconnects, it repeats the URL of its first request, so the position in the URL is out of date.
    if let id = request.fields.first(.lastEventID), !id.isEmpty {
      start = .validator(Cursor(id))
    } else if request.fields.contains(.ifNoneMatch), !options.given.statesPosition {
      readValidator(of: request)
    }
    if request.method == .head { start = .latest }
    // The random part spreads the reconnections of clients that have connected at the same time.
    let lifetime = settings.streamLifetime / 1000 * Int64.random(in: 900...1100)
    wait = WaitParameter.granted(lifetime, for: request)
  }

  /// Reads the position from `If-None-Match`. This is for clients that can only repeat a request with the `ETag` of the
  /// last response.
  ///
  /// The values `""`, which curl sends before it has a tag, and `*` are not from a response, so they state no position.
  /// If there are several positions, the latest is used, since the client already has a response for each of them.
  private mutating func readValidator(of request: borrowing HTTPRequestHead) {
    var cursor: Cursor?
    var isOfAResponse = false
    request.fields.forEachEntityTag(of: .ifNoneMatch) { tag in
      isOfAResponse = isOfAResponse || !tag.isEmpty && !tag.equals("*")
      guard let found = Cursor(entityTag: tag) else { return }
      if cursor.map(found.isLater) ?? true { cursor = found }
    }
    guard isOfAResponse else { return }
    start = .validator(cursor)
    options.isConditional = true
  }

  private mutating func read(
    _ parameter: QueryParameter, _ value: Span<UInt8>, _ settings: APISettings.Delivery
  ) throws(Problem) {
    if parameter.isPosition, options.given.statesPosition {
      throw Problem(
        .invalidParameter, "cursor, since and last exclude each other: give one of them as the start of the poll")
    }
    options.given.insert(parameter)
    switch parameter {
    case .cursor: start = try Self.cursor(value)
    case .since:
      guard let span = TimeSpan(value) else {
        throw Problem(
          .invalidParameter,
          "since '\(value.excerpt())' is not valid: use a duration such as 10m, 1h30m or whole seconds, of at most 2147483648 s"
        )
      }
      start = .since(span)
    case .last:
      guard let count = value.decimalValue() else {
        throw Problem(.invalidParameter, "last '\(value.excerpt())' is not valid: use a number of messages")
      }
      start = .last(UInt64(count))
    case .stream:
      guard value.equals("1") else {
        throw Problem(
          .invalidParameter, "stream '\(value.excerpt())' is not valid: use 1, or leave it out for a poll")
      }
    case .events:
      guard value.equals("session") else {
        throw Problem(
          .invalidParameter, "events '\(value.excerpt())' is not valid: use session, or leave it out for messages only")
      }
    case .data:
      guard value.equals("omit") else {
        throw Problem(
          .invalidParameter, "data '\(value.excerpt())' is not valid: use omit, or leave it out for whole messages")
      }
    case .ttl, .until, .ack, .after, .code, .name, .ready, .event, .exclude, .type: preconditionFailure("not accepted")
    case .namespace:
      var filter = options.filter ?? TopicFilter()
      guard filter.add(namespace: value) else {
        throw Problem(
          .invalidParameter,
          "namespace '\(value.excerpt())' is one too many: use at most \(TopicFilter.maximumPatterns) topics and namespaces"
        )
      }
      options.filter = filter
    case .wait:
      wait = try WaitParameter.read(value)
      options.wait = Int32(min(wait, settings.maximumWait).millisecondsRoundedUp)
    case .limit: options.limit = Int32(try Self.limit(value, settings))
    case .maxBytes: options.maxBytes = Int32(try Self.maxBytes(value, settings))
    case .topic:
      var filter = options.filter ?? TopicFilter()
      guard filter.add(value) else {
        throw Problem(
          .invalidParameter,
          "topic '\(value.excerpt())' is not accepted: use 1 to \(PushTopic.maximumBytes) bytes, with a final '*' for all topics that begin so, and at most \(TopicFilter.maximumPatterns) topics"
        )
      }
      options.filter = filter
    }
  }

  /// Throws if the client requests a namespace that no push of the session can have.
  func checkNamespaces(of session: Session) throws(Problem) {
    guard options.given.contains(.namespace) else { return }
    guard let format = session.upstream.eventFormat else {
      throw Problem(
        .invalidParameter,
        "namespace is for Socket.IO upstreams, and session '\(session.name)' has another: leave it out")
    }
    for namespace in options.filter?.namespaces ?? [] where !format.joins(namespace) {
      throw Problem(.invalidParameter, format.unknown(namespace: namespace, of: session))
    }
  }

  /// Parses `limit`, and lowers it to the maximum.
  static func limit(_ value: Span<UInt8>, _ settings: APISettings.Delivery) throws(Problem) -> Int {
    guard let limit = value.decimalValue(), limit > 0 else {
      throw Problem(
        .invalidParameter, "limit '\(value.excerpt())' is not valid: use a number of messages, 1 or more")
    }
    return min(limit, settings.maximumLimit)
  }

  /// Parses `max_bytes`, and lowers it to the maximum.
  static func maxBytes(_ value: Span<UInt8>, _ settings: APISettings.Delivery) throws(Problem) -> Int {
    guard let bytes = value.decimalValue(), bytes > 0 else {
      throw Problem(
        .invalidParameter, "max_bytes '\(value.excerpt())' is not valid: use a number of bytes, 1 or more")
    }
    return min(bytes, settings.maximumAnswerBytes)
  }

  private static func cursor(_ value: Span<UInt8>) throws(Problem) -> StartingPoint {
    if let start = StartingPoint(cursor: value) { return start }
    let wrong =
      IdentifierKind(value) == .delivery ? "is the id of a delivery, not a position among pushes" : "is not valid"
    let shown = value.extracting(first: min(value.count, Cursor.maximumTextLength)).text()
    throw Problem(
      .invalidParameter,
      "cursor '\(shown)' \(wrong): use \(StartingPoint.expectation); since=10m and last=5 are parameters of their own")
  }
}

extension PollOptions {
  fileprivate var streamFormat: StreamFormat? {
    switch representation {
    case .events: .events
    case .lines where given.contains(.stream): .lines
    default: nil
    }
  }
}

extension QueryParameter {
  /// Whether the parameter states where a poll starts.
  fileprivate var isPosition: Bool { self == .cursor || self == .since || self == .last }
}

extension QueryParameter.Names {
  fileprivate var statesPosition: Bool { contains(.cursor) || contains(.since) || contains(.last) }
}
