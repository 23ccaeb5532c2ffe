import Access
import ByteStreams
import Configuration
import Foundation
import HTTPCodec
import HTTPServer
import Host
import Idempotency
import Inbox
import Journal
import Metrics
import Reactor
import RedisStore
import Sessions
import Testing
import Threading
import Upstream
import WebSocketCodec

@testable import API
@testable import Logging

/// An API whose sessions are not started: requests go in as bytes, and responses come out, without a socket.
struct APIFixture {
  let api: API
  let sessions: SessionDirectory
  let lifecycle = Lifecycle()
  let registry = MetricsRegistry()
  var client = ClientConnection.neighbour
  var now = ProcessInformation.monotonicTime()

  /// - Parameters:
  ///   - openManagement: the management listeners that serve the API without credentials.
  ///   - journal: the journal that stores the session.
  ///   - endpoints: the operations of the API.
  init(
    sessions names: [String] = ["default"], openManagement: Set<HTTPListener.Reach> = [.loopback],
    managementConnections: Int? = nil, store: StoreState? = nil,
    journal: TestJournal? = nil, endpoints: [any Endpoint.Type] = API.endpoints,
    _ change: (inout GatewaySettings) -> Void = { _ in }
  ) throws {
    var settings = GatewaySettings()
    settings.session.upstream.url = try WebSocketURL("ws://user:secret@127.0.0.1:1/?token=secret")
    change(&settings)
    let upstream = try PreparedSettings(settings.session.upstream)
    let registry = registry
    sessions = SessionDirectory(
      names.map { name in
        Session(
          name, upstream, retention: Retention(), logger: Logger(level: .error, format: .json), metrics: registry,
          attemptLimiter: ConcurrentAttemptLimiter(), opened: journal?.opened)
      }, creating: CreatedSessions.Limits(settings.createdSessions), logger: Logger(level: .error, format: .json),
      registry: registry, attemptLimiter: ConcurrentAttemptLimiter())
    sessions.profiles.replace(
      with: try settings.profiles.map { ProfilePlan($0, try PreparedSettings($0.sample)) })
    var storeState: (@Sendable () -> StoreState)?
    if let store { storeState = { store } }
    api = API(
      CommonState(
        settings.api, http: settings.http, store: settings.store, lease: settings.sharedStore.lease,
        access: AccessState(
          settings.authentication, Credentials(tokens: nil, jwt: nil), openManagement: openManagement, registry),
        sessions: sessions, lifecycle: lifecycle, storeState: storeState,
        registry: registry, managementConnections: managementConnections ?? settings.http.managementConnections,
        openConnections: Gauge(), version: "1.2.3"),
      loopIndex: 0, endpoints: endpoints)
  }

  /// Starts the sessions, so that clients can create others. The caller must end the loop with `end`.
  func startSessions() throws -> EventLoop {
    let loop = try EventLoop(index: 0)
    sessions.start(on: [loop])
    return loop
  }

  static func end(_ loop: EventLoop) {
    loop.stop()
    loop.join()
  }

  func putSession(_ name: String, _ body: String) throws -> Received {
    try respond(
      "PUT /v1/sessions/\(name) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
  }

  func session(_ name: String = "default") throws -> Session { try #require(sessions.find(name)) }

  /// The outcome of a request, and its response if there is one.
  ///
  /// - Parameters:
  ///   - requestID: the `X-Request-Id` that the server has read.
  ///   - meanwhile: called between the head and the end of the body.
  ///   - isPrepared: whether the body is prepared, even if it is small.
  func send(
    _ request: [UInt8], _ listener: HTTPListener = .loopback, from other: ClientConnection? = nil,
    requestID: String = "", isPrepared: Bool = false, meanwhile: () throws -> Void = {}
  ) throws -> (outcome: Outcome, response: Received) {
    var connection = HTTPServerConnection()
    connection.receive(request.span)
    var exchange: Exchange?
    var response = Response()
    response.requestID.append(requestID)
    do {
      while let event = try connection.nextEvent() {
        switch event {
        case .head:
          exchange = api.begin(connection.request, on: listener, from: other ?? client)
          try meanwhile()
        case .content: exchange?.body?.append(connection.content)
        case .end:
          var finished = try #require(exchange)
          if isPrepared, let preparation = api.preparation(of: finished) {
            preparation.prepare(finished.body?.bytes ?? [])
            finished.body?.preparation = preparation
          }
          let outcome = api.finish(finished, at: now, into: &response)
          return (outcome, Received(response))
        case .trailers, .endOfInput: break
        }
      }
    } catch let error as HTTPProtocolError {
      if let exchange { api.abandon(exchange) }
      api.refuse(.malformed(error), into: &response)
      return (.respond, Received(response))
    }
    Issue.record("the request is not complete")
    return (.respond, Received(response))
  }

  /// The response to a request that does not wait.
  func respond(_ request: String, _ listener: HTTPListener = .loopback) throws -> Received {
    let (outcome, response) = try send(Array(request.utf8), listener)
    guard case .respond = outcome else {
      Issue.record("\(request.prefix(80)) waits")
      return response
    }
    return response
  }

  /// The response to a request without content.
  func respond(
    _ method: String, _ target: String, _ fields: String = "", _ listener: HTTPListener = .loopback
  ) throws -> Received {
    try respond("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n", listener)
  }

  func post(_ body: String, to target: String = "/v1/messages", fields: String = "") throws -> Received {
    try post(Array(body.utf8), to: target, fields: fields)
  }

  func post(_ body: [UInt8], to target: String = "/v1/messages", fields: String = "") throws -> Received {
    let head = "POST \(target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.count)\r\n\(fields)\r\n"
    return try send(Array(head.utf8) + body).response
  }

  /// Creates a consumer with PUT.
  func put(_ name: String, _ body: String, of path: String = "/v1") throws -> Received {
    try respond(
      "PUT \(path)/consumers/\(name) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
  }

  /// Begins a POST with this key, and neither accepts nor refuses it.
  func beginKeyed(_ key: String, body: String) throws {
    var connection = HTTPServerConnection()
    connection.receive(
      Array(
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nIdempotency-Key: \(key)\r\n\r\n".utf8
      ).span)
    _ = try connection.nextEvent()
    let field = try #require(try IdempotencyField(connection.request))
    let parameters = try SendParameters(connection.request, wait: .zero, maximum: .zero)
    let session = try session()
    let verdict = api.common.idempotency.withLock {
      $0.begin(
        field.key(of: "", in: session), field.fingerprint(parameters, Array(body.utf8)), by: 0, now: now)
    }
    #expect(verdict == .first)
  }

  /// The response to a request that the server refuses by itself.
  func refused(_ refusal: HTTPServerRefusal) -> Received {
    var response = Response()
    api.refuse(refusal, into: &response)
    return Received(response)
  }

  /// The held request.
  func hold(_ target: String, _ method: String = "GET") throws -> any WaitingRequest {
    let fields = method == "GET" ? "" : "Content-Length: 0\r\n"
    let (outcome, _) = try send(Array("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n".utf8))
    guard case .wait(let request) = outcome else { throw NotHeld() }
    return request
  }

  /// Advances a held request, as the server does after a notification.
  func advance(_ request: any WaitingRequest) -> WaitStep { request.advance(.news, at: now) }

  /// Ends the wait of a held request, as the server does at its deadline.
  func finish(_ request: any WaitingRequest) -> Received {
    var response = Response()
    _ = request.advance(.end, at: now)
    request.finish(at: now, into: &response)
    return Received(response)
  }

  private struct NotHeld: Error {}
}

extension WaitStep {
  var isReady: Bool { if case .ready = self { true } else { false } }
  var notifier: Notifier? { if case .wait(let notifier, _, _) = self { notifier } else { nil } }
  var deadline: MonotonicTime? { if case .wait(_, let deadline, _) = self { deadline } else { nil } }
  var endsAtDrain: Bool? { if case .wait(_, _, let endsAtDrain) = self { endsAtDrain } else { nil } }
}

/// A response as a client sees it.
struct Received {
  let status: Int
  let fields: String
  /// The content, compressed if `Content-Encoding` says so.
  let bytes: [UInt8]
  var body: String { String(decoding: bytes, as: UTF8.self) }
  let prepared: PreparedResponse?
  /// The `request_id` in the log line, if the request is refused.
  let refusal: String?

  init(_ response: borrowing Response) {
    refusal = response.refusal.isEmpty ? nil : response.requestID.bytes.text()
    prepared = response.prepared
    if let prepared {
      let (head, content) = (prepared.fields, prepared.content)
      status = Int(prepared.status.rawValue)
      fields = head.bytes.text() + response.additionalFields.bytes.text()
      bytes = [UInt8](copying: content.bytes)
    } else {
      status = Int(response.status.rawValue)
      fields = response.fields.bytes.text() + response.additionalFields.bytes.text()
      bytes = response.content.copyBytes()
    }
  }

  func field(_ name: String) -> String? {
    fields.components(separatedBy: "\r\n").first { $0.hasPrefix(name + ": ") }.map {
      String($0.dropFirst(name.count + 2))
    }
  }

  var json: [String: Any] {
    (try? JSONSerialization.jsonObject(with: Data(body.utf8))) as? [String: Any] ?? [:]
  }

  func text(_ member: String) -> String? { json[member] as? String }

  /// The kind of a problem, by its type.
  var problem: String? { text("type").map { String($0.dropFirst("/errors/".count)) } }
}

extension HTTPListener {
  static let loopback = HTTPListener(.client, reach: .loopback)
  static let management = HTTPListener(.management, reach: .loopback)
}

extension ClientConnection {
  /// A client on the same machine.
  static let neighbour = ClientConnection(.ipv4(0x7F00_0001))
}
