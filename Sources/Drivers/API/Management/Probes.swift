import ByteStreams
import HTTPCodec
import HTTPServer
import Journal
import Metrics
import Sessions

/// `GET /livez`
enum LiveProbe: ImmediateEndpoint {
  static var route: Route { .management("/livez", formats: .ofProbe) }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, .plainText)
    response.content.text.append("ok\n" as StaticString)
  }
}

/// `GET /startupz`
enum StartProbe: ImmediateEndpoint {
  static var route: Route { .management("/startupz", formats: .ofProbe) }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    let isStarted = turn.api.common.lifecycle.phase != .starting
    response.begin(isStarted ? .ok : .serviceUnavailable, .plainText)
    response.content.text.append(isStarted ? "ok\n" as StaticString : "starting\n")
  }
}

/// `GET /readyz`. Ready means that clients are served and at least one configured session is connected, or connects on
/// demand and has not failed. Sessions that clients have created are not considered.
///
/// With `exclude=upstream`, the upstream is not considered, since messages are queued while it is down. This is for a
/// load balancer in front of several gateways with the same upstream. Without the parameter, none of these gateways
/// would be ready while the upstream is down.
enum ReadyProbe: ImmediateEndpoint {
  static var route: Route { .management("/readyz", parameters: [.exclude], formats: .ofProbe) }

  /// Returns whether the upstream is excluded.
  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> Bool {
    var excludesUpstream = false
    try QueryParameter.forEach(of: head, accepting: [.exclude]) { _, value throws(Problem) in
      guard value.equals("upstream") else {
        throw Problem(
          .invalidParameter,
          "exclude '\(value.excerpt())' is not valid: use upstream, or leave it out to check the upstream as well")
      }
      excludesUpstream = true
    }
    return excludesUpstream
  }

  static func respond(
    _ excludesUpstream: Bool, to request: ReceivedRequest, _ turn: Turn, into response: inout Response
  ) {
    let common = turn.api.common
    let sessions = common.sessions.all
    let unavailable = common.unavailableSessions
    let store = common.store
    let redisProblem = common.storeSettings.engine == .redis ? store.redisProblem : nil
    let problem: StaticString? =
      switch common.lifecycle.phase {
      case .starting: "starting"
      case .draining: "draining"
      case .serving where redisProblem != nil: redisProblem
      case .serving where common.sessions.created.isListAwaited: "the list of created sessions was not read yet"
      case .serving where store.peerProblem != nil: store.peerProblem
      case .serving:
        excludesUpstream || unavailable.count < sessions.count || sessions.isEmpty ? nil : "upstream not connected"
      }
    response.begin(problem == nil ? .ok : .serviceUnavailable, .plainText)
    response.content.text.append(problem ?? "ok")
    response.content.text.append("\n" as StaticString)
    if redisProblem == nil, store.hasFailed {
      response.content.text.append("the store does not work: messages are refused, and pushes are not stored\n")
    }
    store.writeOtherUpstream(showingHosts: common.access.isOpen, into: &response.content.text)
    guard sessions.count > 1 else { return }
    for session in unavailable { response.content.text.append("session \(session.name): upstream not connected\n") }
  }
}

/// `GET /metrics`
enum ReadMetrics: ImmediateEndpoint {
  static var route: Route { .management("/metrics", formats: .text) }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, MetricsRegistry.contentType)
    turn.api.common.registry.render(into: &response.content.text)
  }
}

extension Route {
  /// A route of management listeners only. It needs no credentials: the address of the listener decides who can use it.
  static func management(
    _ path: StaticString, parameters: QueryParameter.Names = .none, formats: Formats, allowsLinks: Bool = false
  ) -> Route {
    Route(
      method: .get, path: path, listeners: .management, scope: nil, parameters: parameters, formats: formats,
      isCompressed: true, allowsLinks: allowsLinks, kind: .management)
  }
}
