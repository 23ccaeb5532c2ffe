import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import JSONCodec
import Journal
import Metrics
import Reactor
import Sessions
import Upstream
import UpstreamSession

/// `GET /v1/sessions`: the sessions that the grant allows. The list has the configured sessions in the order of the
/// configuration, followed by the sessions that clients have created, sorted by name.
enum ListSessions: ImmediateEndpoint {
  static let parameters: QueryParameter.Names = [.limit, .after, .name, .ready]

  static var route: Route {
    Route(method: .get, path: "/v1/sessions", scope: [], parameters: parameters, isCompressed: true, kind: .session)
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> SessionPage { try SessionPage(head) }

  static func respond(_ page: SessionPage, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, "application/json")
    response.content.text.append("{\"sessions\":[" as StaticString)
    // The position is searched only among sessions that exist for the client, since the list must not reveal whether
    // another name is configured.
    var configured = turn.api.common.sessions.all.filter { request.grant?.allows($0) ?? false }[...]
    var isAfterCreated = false
    if let start = page.start {
      // Any other name belongs to a created session, and all created sessions follow the configured sessions.
      let index = configured.firstIndex { $0.name == start }
      isAfterCreated = index == nil
      configured = index.map { configured[($0 + 1)...] } ?? []
    }
    var sessions = Array(configured.lazy.filter(page.contains).prefix(page.limit + 1))
    sessions += turn.api.common.sessions.created.list(
      after: isAfterCreated ? page.start : nil, limit: page.limit + 1 - sessions.count
    ) { page.contains($0) && request.grant?.allows($0) ?? false }
    for (index, session) in sessions.prefix(page.limit).enumerated() {
      if index > 0 { response.content.text.append("," as StaticString) }
      turn.api.common.writeSummary(of: session, for: request.grant, at: turn.now, into: &response.content.text)
    }
    response.content.text.append(
      sessions.count > page.limit ? "],\"more\":true,\"scopes\":[" as StaticString : "],\"more\":false,\"scopes\":[")
    for (index, scope) in (request.grant?.scopes ?? []).text.split(separator: " ").enumerated() {
      if index > 0 { response.content.text.append(",") }
      response.content.text.append(jsonString: String(scope))
    }
    response.content.text.append("]}\n" as StaticString)
  }
}

/// A page of `GET /v1/sessions`.
struct SessionPage {
  /// The default number of sessions per page. A page has room for the maximum number of named sessions, but not for the
  /// default session in addition.
  static var defaultLimit: Int { 1_000 }
  static var maximumLimit: Int { 10_000 }

  var limit = SessionPage.defaultLimit
  /// The name of the last session of the previous page.
  var start: String?
  /// The name of the sessions, or the beginning of their names if `isPrefix`.
  private var name = ""
  private var isPrefix = true
  /// Whether the sessions are connected; nil for all.
  private var ready: Bool?

  /// Whether the request selects a session.
  func contains(_ session: Session) -> Bool {
    guard isPrefix ? session.name.utf8.starts(with: name.utf8) : session.name == name else { return false }
    return ready.map { $0 == session.upstream.isReady } ?? true
  }

  init(_ request: borrowing HTTPRequestHead) throws(Problem) {
    var (limit, start) = (Self.defaultLimit, String?.none)
    var (text, isPrefix, ready) = ("", true, Bool?.none)
    try QueryParameter.forEach(of: request, accepting: ListSessions.parameters) { parameter, value throws(Problem) in
      switch parameter {
      case .limit:
        guard let number = value.decimalValue(), (1...Self.maximumLimit).contains(number) else {
          throw Problem(
            .invalidParameter,
            "limit '\(value.excerpt())' is not valid: use a number from 1 to \(Self.maximumLimit)")
        }
        limit = number
      case .name:
        isPrefix = !value.isEmpty && value[value.count - 1] == UInt8(ascii: "*")
        text = value.extracting(first: value.count - (isPrefix ? 1 : 0)).text()
        guard SessionName.isValid(text) || isPrefix && text.isEmpty else {
          throw Problem(
            .invalidParameter,
            "name '\(value.excerpt())' is not valid: use the name of a session, or the beginning of names followed by '*'"
          )
        }
      case .ready:
        guard value.equals("true") || value.equals("false") else {
          throw Problem(.invalidParameter, "ready '\(value.excerpt())' is not valid: use true or false")
        }
        ready = value.equals("true")
      default:
        let name = value.text()
        guard SessionName.isValid(name) else {
          throw Problem(
            .invalidParameter, "after '\(value.excerpt())' is not the name of a session: use \(SessionName.expectation)"
          )
        }
        start = name
      }
    }
    (self.limit, self.start) = (limit, start)
    (name, self.isPrefix, self.ready) = (text, isPrefix, ready)
  }
}
