import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import Sessions

/// One row of the table of routes: everything that the gateway must know about the requests of one method at one path.
/// The router, access control, forwarding, the access log and the metrics read the row, and no code tests which route a
/// request has.
///
/// A row is trivially copyable. It is copied for every request, so if it contained references, the loops would contend
/// for their reference counts.
struct Route {
  /// A route with GET also serves HEAD. Every path accepts OPTIONS.
  let method: HTTPMethod
  /// The path, with variables in braces, as in `openapi.yaml`.
  let path: StaticString
  /// The path with the name of a session, if `path` belongs to the default session.
  var sessionPath: StaticString?
  var listeners = Listeners.all
  /// The scopes that allow a request: the grant must have one of them. If the set is empty, any scope suffices. nil if
  /// the request needs no credentials.
  let scope: Scopes?
  /// Whether the credentials must allow all sessions.
  var needsAllSessions = false
  /// The accepted query parameters. If there are none, the router refuses a query. Otherwise, the endpoint reads the
  /// query.
  var parameters = QueryParameter.Names.none
  var body = Body.none
  /// Whether Idempotency-Key has an effect.
  var takesIdempotencyKey = false
  var formats = Formats.json
  /// Whether responses without a wait are compressed.
  var isCompressed = false
  /// Whether a person may follow a link from a page of any origin to this resource. It must be false unless a GET of
  /// the resource changes nothing and no frame can show the response.
  var allowsLinks = false
  var place = Place.local
  /// The kind of request in the metrics of response times.
  var kind = LoopLatencies.Request.other

  /// The listeners that have the route.
  struct Listeners: OptionSet {
    let rawValue: UInt8

    /// Clients and other gateways.
    static let clients = Listeners(rawValue: 1)
    static let management = Listeners(rawValue: 2)
    static let all: Listeners = [.clients, .management]

    init(rawValue: UInt8) { self.rawValue = rawValue }
    init(_ role: HTTPListener.Role) { self = role == .management ? .management : .clients }
  }

  enum Body {
    /// Content is dropped.
    case none
    /// Messages: the endpoint prepares to collect them.
    case messages
    /// A JSON document.
    case document(limit: Int)
    /// A change of the desired state (`SessionChange`).
    case change

    /// Prepares to collect a document. Throws if the head of the request shows that the document is not valid.
    func prepare(_ head: borrowing HTTPRequestHead) throws(Problem) -> RequestBody? {
      switch self {
      case .none, .messages: return nil
      case .document(let limit):
        try RequestDocument.check(head, limit: limit)
        return RequestBody(head.framing, limit: limit)
      case .change:
        try RequestDocument.check(head, limit: SessionChange.limit, isMergePatch: true)
        return RequestBody(head.framing, limit: SessionChange.limit)
      }
    }
  }

  /// The gateway that executes a request.
  enum Place {
    /// The gateway that gets the request, which belongs to no session.
    case local
    /// The gateway that gets the request, for a session that it knows.
    case anyGateway
    /// The holder of the session.
    case holder(HolderRules)
    /// The gateway that gets the request, or the holder if a session with the name in the path exists.
    case newSession(HolderRules)
  }

  /// Whether the path has a session that must exist.
  var needsSession: Bool {
    switch place {
    case .anyGateway, .holder: true
    case .local, .newSession: false
    }
  }

  /// The rules for gateways that are not the holder; nil if the request is never forwarded.
  var holderRules: HolderRules? {
    switch place {
    case .holder(let rules), .newSession(let rules): rules
    case .local, .anyGateway: nil
    }
  }
}

/// How requests of a route are forwarded to the holder of their session, and what their responses mean if the holder
/// changes.
struct HolderRules {
  /// The effect of executing a request twice.
  let repetition: ForwardingRepetition
  /// Whether only the holder can execute a request. If not, every gateway can also respond without the holder.
  var isExclusive = true
  /// Whether a response without a wait is correct even if this gateway lost the session while it executed the request.
  /// If not, the response is discarded, and the request can be executed at the next holder. A refusal is always
  /// discarded in this case.
  var staysTrue = false
  /// The effect that a request other than GET may have had after it was sent to the holder.
  var effect = HeldEffect.change
  /// The parameter without which a request has no lasting effect; nil if every request has an effect.
  var effectParameter: QueryParameter?
  /// Whether a waiting request may leave this gateway before its condition is met. When the server drains, such a
  /// request gets a response. If this gateway loses the session, the request continues at the next holder. The request
  /// must be safe to execute twice, or its effect must be taken back.
  var movesOn = false
  var wait = Wait.never
  /// The wait of a request that states none; nil for `delivery.wait`.
  var standardWait: TimeSpan?
  /// Whether the holder stores the change of a request before it responds.
  var isStored = true
  /// Whether the response is the document of a session, to which this gateway adds its part.
  var isDocument = false

  /// Which requests are counted as requests that may wait. They are counted even if the values of their parameters
  /// exclude a wait.
  enum Wait {
    case never, always
    /// With this query parameter.
    case with(QueryParameter)
    /// With any query parameter, or with `Prefer`.
    case withParameters
  }
}

/// Formats that a route offers. If a client accepts several of them equally, it gets the first: text comes before HTML,
/// since a terminal can show it, and browsers request HTML by name.
struct Formats: OptionSet {
  let rawValue: UInt8

  static let text = Formats(rawValue: 1)
  static let html = Formats(rawValue: 2)
  static let json = Formats(rawValue: 4)
  static let yaml = Formats(rawValue: 8)
  /// The endpoint chooses the format, since it depends on the parameters.
  static let chosenByEndpoint = Formats(rawValue: 16)
  /// The clients of a probe read only the status code, so Accept and Accept-Encoding do not matter.
  static let ofProbe: Formats = []

  /// Returns the format of the response.
  func negotiate(_ request: borrowing HTTPRequestHead) throws(Problem) -> Representation {
    if isEmpty || self == .chosenByEndpoint { return .text }
    // The constant array needs no allocation.
    if self == .json { return try Representation.negotiate(request, [.json]) }
    let all: [(Formats, Representation)] = [(.text, .text), (.html, .html), (.json, .json), (.yaml, .yaml)]
    return try Representation.negotiate(request, all.filter { contains($0.0) }.map(\.1))
  }
}

/// The methods of a path, as in `Allow`.
struct Methods: OptionSet {
  let rawValue: UInt16

  /// Every method that any path accepts.
  static let all: Methods = [
    Methods(.get), Methods(.post), Methods(.put), Methods(.patch), Methods(.delete),
  ]

  init(rawValue: UInt16) { self.rawValue = rawValue }

  /// A route with GET also has HEAD, and every path has OPTIONS.
  init(_ method: HTTPMethod) {
    let head: UInt16 = method == .get ? 1 << HTTPMethod.head.rawValue : 0
    rawValue = 1 << method.rawValue | head | 1 << HTTPMethod.options.rawValue
  }

  private static let order: [HTTPMethod] = [.get, .head, .post, .put, .patch, .delete, .options]

  /// Writes the names, separated by commas.
  func write(into output: inout ByteQueue) {
    var isFirst = true
    for method in Self.order where rawValue & 1 << method.rawValue != 0 {
      if !isFirst { output.append(", " as StaticString) }
      output.append(method.name)
      isFirst = false
    }
  }

  /// Writes the header field `Allow`.
  func writeField(into fields: inout ByteQueue) {
    fields.append("Allow: " as StaticString)
    write(into: &fields)
    fields.append("\r\n" as StaticString)
  }

  var text: String {
    var names = ByteQueue()
    write(into: &names)
    return names.bytes.text()
  }
}
