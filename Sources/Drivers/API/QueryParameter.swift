import ByteStreams
import HTTPCodec

/// The query parameters of all routes.
enum QueryParameter: UInt8, CaseIterable {
  case cursor, since, last, wait, limit, maxBytes, ttl, topic, until, stream, events, ack, after, code, data, name,
    ready
  case event, namespace, exclude, type

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

  /// Returns nil unless a parameter has this name.
  init?(_ name: Span<UInt8>) {
    var number: UInt8 = 0
    while let parameter = QueryParameter(rawValue: number) {
      if name.equals(parameter.name) {
        self = parameter
        return
      }
      number += 1
    }
    return nil
  }

  /// A set of parameters. It is a number and not an array, so that reading a query allocates nothing.
  struct Names: Equatable, ExpressibleByArrayLiteral {
    private var bits: UInt32 = 0
    /// The parameters that a request may contain several times.
    private var repeatableBits: UInt32 = 0

    static var none: Names { Names() }

    init() {}

    init(arrayLiteral parameters: QueryParameter...) { for parameter in parameters { insert(parameter) } }

    init(_ names: Names, repeatable: Names) { (bits, repeatableBits) = (names.bits | repeatable.bits, repeatable.bits) }

    func contains(_ parameter: QueryParameter) -> Bool { bits & 1 << parameter.rawValue != 0 }

    mutating func insert(_ parameter: QueryParameter) { bits |= 1 << parameter.rawValue }

    func mayRepeat(_ parameter: QueryParameter) -> Bool { repeatableBits & 1 << parameter.rawValue != 0 }

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
      guard !seen.contains(parameter) || accepted.mayRepeat(parameter) else {
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
