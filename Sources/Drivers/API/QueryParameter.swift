import ByteStreams
import HTTPCodec

/// The query parameters of all routes. Each raw value is one bit.
enum QueryParameter: UInt32, CaseIterable {
  case cursor = 1
  case since = 2
  case last = 4
  case wait = 8
  case limit = 16
  case maxBytes = 32
  case ttl = 64
  case topic = 128
  case until = 256
  case stream = 512
  case events = 1024
  case ack = 2048
  case after = 4096
  case code = 8192
  case data = 16384
  case name = 32768
  case ready = 65536
  case event = 131072
  case namespace = 262144
  case exclude = 524288
  case type = 1_048_576

  /// The name in a request.
  var name: StaticString {
    switch self {
    case .cursor: "cursor"
    case .since: "since"
    case .last: "last"
    case .wait: "wait"
    case .limit: "limit"
    case .maxBytes: "max_bytes"
    case .topic: "topic"
    case .ttl: "ttl"
    case .until: "until"
    case .stream: "stream"
    case .events: "events"
    case .ack: "ack"
    case .after: "after"
    case .code: "code"
    case .data: "data"
    case .name: "name"
    case .ready: "ready"
    case .event: "event"
    case .namespace: "namespace"
    case .exclude: "exclude"
    case .type: "type"
    }
  }

  init?(_ name: Span<UInt8>) {
    if name.equals("cursor") {
      self = .cursor
    } else if name.equals("wait") {
      self = .wait
    } else if name.equals("limit") {
      self = .limit
    } else if name.equals("max_bytes") {
      self = .maxBytes
    } else if name.equals("topic") {
      self = .topic
    } else if name.equals("since") {
      self = .since
    } else if name.equals("last") {
      self = .last
    } else if name.equals("ttl") {
      self = .ttl
    } else if name.equals("until") {
      self = .until
    } else if name.equals("stream") {
      self = .stream
    } else if name.equals("events") {
      self = .events
    } else if name.equals("ack") {
      self = .ack
    } else if name.equals("after") {
      self = .after
    } else if name.equals("code") {
      self = .code
    } else if name.equals("data") {
      self = .data
    } else if name.equals("name") {
      self = .name
    } else if name.equals("ready") {
      self = .ready
    } else if name.equals("event") {
      self = .event
    } else if name.equals("namespace") {
      self = .namespace
    } else if name.equals("exclude") {
      self = .exclude
    } else if name.equals("type") {
      self = .type
    } else {
      return nil
    }
  }

  /// A set of parameters: the union of their raw values. It is not an array, so that reading a query allocates nothing.
  struct Names: Equatable {
    fileprivate var bits: UInt32
    /// The parameters that a request may contain several times.
    fileprivate var repeatable: UInt32 = 0

    static var none: Names { Names(bits: 0) }
    static var delivery: Names { Names(bits: QueryParameter.wait.rawValue) }
    static var call: Names {
      Names(
        bits: QueryParameter.wait.rawValue | QueryParameter.ttl.rawValue | QueryParameter.event.rawValue
          | QueryParameter.namespace.rawValue | QueryParameter.type.rawValue)
    }
    static var send: Names {
      Names(
        bits: QueryParameter.ttl.rawValue | QueryParameter.topic.rawValue | QueryParameter.until.rawValue
          | QueryParameter.wait.rawValue | QueryParameter.event.rawValue | QueryParameter.namespace.rawValue
          | QueryParameter.type.rawValue)
    }
    static var receive: Names {
      Names(
        bits: QueryParameter.wait.rawValue | QueryParameter.limit.rawValue | QueryParameter.maxBytes.rawValue
          | QueryParameter.ack.rawValue)
    }
    static var list: Names { Names(bits: QueryParameter.limit.rawValue | QueryParameter.after.rawValue) }
    static var sessions: Names {
      Names(bits: list.bits | QueryParameter.name.rawValue | QueryParameter.ready.rawValue)
    }
    static var closing: Names { Names(bits: QueryParameter.code.rawValue) }
    static var readiness: Names { Names(bits: QueryParameter.exclude.rawValue) }
    static var poll: Names {
      Names(
        bits: QueryParameter.cursor.rawValue | QueryParameter.since.rawValue | QueryParameter.last.rawValue
          | QueryParameter.wait.rawValue | QueryParameter.limit.rawValue | QueryParameter.maxBytes.rawValue
          | QueryParameter.topic.rawValue | QueryParameter.stream.rawValue | QueryParameter.events.rawValue
          | QueryParameter.data.rawValue | QueryParameter.namespace.rawValue,
        repeatable: QueryParameter.topic.rawValue | QueryParameter.namespace.rawValue)
    }

    func contains(_ parameter: QueryParameter) -> Bool { bits & parameter.rawValue != 0 }

    mutating func insert(_ parameter: QueryParameter) { bits |= parameter.rawValue }

    /// The names as a list for the text of an error: `cursor, wait and limit`.
    var text: String {
      let names = QueryParameter.allCases.filter(contains).map(\.name.description)
      guard let last = names.last else { return "none" }
      return names.count == 1 ? last : names.dropLast().joined(separator: ", ") + " and " + last
    }
  }

  /// Calls `read` with each query parameter of a request and its decoded value.
  ///
  /// One rule applies to all routes: a parameter that the route does not accept, or that is repeated, is refused and
  /// not ignored. The rule also applies to probes: a client of `/livez?exclude=x` expects an effect that the parameter
  /// does not have. No client needs an extra parameter to bypass a cache, since responses must not be cached.
  static func forEach(
    of request: borrowing HTTPRequestHead, accepting accepted: Names,
    _ read: (QueryParameter, Span<UInt8>) throws(Problem) -> Void
  ) throws(Problem) {
    guard !request.query.isEmpty else { return }
    var query = HTTPQueryReader(request.query)
    var seen = Names.none
    while true {
      do throws(HTTPQueryError) {
        guard try query.next() else { return }
      } catch {
        throw Problem(.invalidParameter, error.description)
      }
      guard let parameter = QueryParameter(query.name), accepted.contains(parameter) else {
        throw Problem(
          .invalidParameter,
          "query parameter '\(query.name.excerpt())' is unknown: \(request.methodBytes.excerpt()) \(request.path.excerpt()) accepts \(accepted.text)"
        )
      }
      guard !seen.contains(parameter) || accepted.repeatable & parameter.rawValue != 0 else {
        throw Problem(.invalidParameter, "query parameter '\(parameter.name)' is repeated: give it once")
      }
      seen.insert(parameter)
      try read(parameter, query.value)
    }
  }

  /// Calls `read` with each known query parameter and its decoded value, for a request that another gateway validates.
  /// The other gateway refuses a query that cannot be decoded, so parameters after a fault do not matter.
  static func forEachUnvalidated(
    of request: borrowing HTTPRequestHead, _ read: (QueryParameter, Span<UInt8>) -> Void
  ) {
    var query = HTTPQueryReader(request.query)
    while (try? query.next()) == true {
      if let parameter = QueryParameter(query.name) { read(parameter, query.value) }
    }
  }

  /// The query parameters of a request that another gateway validates.
  static func unvalidated(of request: borrowing HTTPRequestHead) -> Names {
    var names = Names.none
    forEachUnvalidated(of: request) { parameter, _ in names.insert(parameter) }
    return names
  }
}
