import ByteStreams
import Configuration
import Foundation
import HTTPCodec
import HTTPServer
import Reactor
import Sessions
import Testing
import Upstream
import UpstreamProtocol

@testable import API

/// Compares the published contract with the server's behaviour.
@Suite struct ContractTests {
  private func operations() -> [ContractOperation] { ContractOperation.all() }

  /// The file does not describe the probes and pages of management listeners, except the history.
  @Test func everyRouteIsAnOperationOfTheFile() throws {
    var operations = Dictionary(uniqueKeysWithValues: operations().map { ("\($0.method) \($0.path)", $0) })
    for route in try APIFixture().api.table.routes {
      let name = "\(route.method.name) \(route.path)"
      guard let operation = operations.removeValue(forKey: name) else {
        #expect(route.listeners == .management, "\(name)")
        continue
      }
      #expect(operation.isManagement == (route.listeners == .management), "\(name)")
      #expect(operation.isPublic == (route.scope == nil), "\(name)")
      #expect(operation.takesIdempotencyKey == route.takesIdempotencyKey, "\(name)")
      let declared = QueryParameter.allCases.filter { operation.queryParameters.contains($0.name.description) }
      #expect(declared.count == operation.queryParameters.count, "\(name)")
      #expect(declared == QueryParameter.allCases.filter(route.parameters.contains), "\(name)")
    }
    // Some of the operations of one session are declared for both of its paths.
    for name in operations.keys { #expect(name.hasSuffix(" /v1/sessions/{name}"), "\(name)") }
  }

  private func withRequest<Result>(
    _ target: String, fields: String = "", _ body: (borrowing HTTPRequestHead) throws -> Result
  ) throws -> Result {
    var connection = HTTPServerConnection()
    connection.receive(Array("GET \(target) HTTP/1.1\r\nHost: x\r\n\(fields)\r\n".utf8).span)
    let event = try connection.nextEvent()
    #expect(event == .head)
    return try body(connection.request)
  }

  @Test func thePollTakesTheQueryParametersOfTheFileAndNoOthers() throws {
    let settings = APISettings().delivery
    let declared = operations().first { $0.path == "/v1/messages" && $0.method == "GET" }?.queryParameters ?? []
    #expect(
      Set(declared) == [
        "cursor", "since", "last", "wait", "limit", "max_bytes", "topic", "stream", "events", "data", "namespace",
      ])
    let values = [
      "cursor": "earliest", "since": "10m", "last": "5", "topic": "a", "wait": "1s", "limit": "5", "max_bytes": "10",
    ]
    for name in declared where values[name] != nil {
      _ = try withRequest("/v1/messages?\(name)=\(values[name] ?? "")") { try PollParameters($0, settings, for: nil) }
    }
    _ = try withRequest("/v1/messages?stream=1&events=session&data=omit", fields: "Accept: application/x-ndjson\r\n") {
      try PollParameters($0, settings, for: nil)
    }
    for bad in [
      "other=1", "wait=x", "wait=1&wait=2", "last=1&since=1m", "limit=0", "limit=-1", "max_bytes=", "cursor=nope",
    ] {
      #expect(throws: Problem.self, "\(bad)") {
        try withRequest("/v1/messages?\(bad)") { try PollParameters($0, settings, for: nil) }
      }
    }
  }

  @Test func aDeliveryTakesTheQueryParametersOfTheFileAndNoOthers() throws {
    let declared = operations().first { $0.path == "/v1/deliveries/{id}" }?.queryParameters ?? []
    #expect(declared == ["wait"])
    func wait(_ query: String, _ fields: String = "") throws -> TimeSpan {
      try withRequest("/v1/deliveries/d-1?\(query)", fields: fields) {
        try WaitParameter.read($0, default: .zero, maximum: .seconds(55))
      }
    }
    #expect(try wait("") == .zero)
    #expect(try wait("wait=20s") == .seconds(20))
    #expect(try wait("wait=10m") == .seconds(55))
    #expect(try wait("", "Prefer: wait=7\r\n") == .seconds(7))
    for bad in ["other=1", "wait=x", "wait=1&wait=2", "wait"] {
      #expect(throws: Problem.self, "\(bad)") { try wait(bad) }
    }
  }

  @Test func aCallTakesTheQueryParametersOfTheFileAndNoOthers() throws {
    let declared = operations().first { $0.path == "/v1/call" }?.queryParameters ?? []
    #expect(Set(declared) == ["wait", "ttl", "event", "namespace", "type"])
    let api = try APIFixture { $0.session.upstream.conventions.correlation = .jsonRPC }
    for bad in ["other=1", "wait=x", "ttl=x", "wait=1&wait=2", "until=written", "topic=a", "cursor=latest"] {
      #expect(try api.post(#"{"id":1}"#, to: "/v1/call?\(bad)").problem == "invalid-parameter", "\(bad)")
    }
  }

  @Test func aSendTakesTheQueryParametersOfTheFileAndNoOthers() throws {
    let declared = operations().first { $0.path == "/v1/messages" && $0.method == "POST" }?.queryParameters ?? []
    #expect(Set(declared) == ["ttl", "topic", "until", "wait", "event", "namespace", "type"])
    let api = try APIFixture()
    for accepted in ["ttl=90s", "topic=a", "until=queued", "until=written&wait=0", "type=text"] {
      #expect(try api.post("a", to: "/v1/messages?\(accepted)").status == 202, "\(accepted)")
    }
    for bad in ["other=1", "ttl=1&ttl=1", "cursor=latest", "limit=1", "ack=latest", "stream=1"] {
      #expect(try api.post("a", to: "/v1/messages?\(bad)").problem == "invalid-parameter", "\(bad)")
    }
  }

  @Test func aReceiveTakesTheQueryParametersOfTheFileAndNoOthers() throws {
    let settings = APISettings().delivery
    let declared = operations().first { $0.path.hasSuffix("/receive") }?.queryParameters ?? []
    #expect(declared == ["ack", "wait", "limit", "max_bytes"])
    let path = "/v1/consumers/workers/receive"
    let values = ["ack": "p-0123456789ab.7", "wait": "1s", "limit": "5", "max_bytes": "10"]
    for name in declared {
      _ = try withRequest("\(path)?\(name)=\(values[name] ?? "")") { try ReceiveParameters($0, settings) }
    }
    for bad in ["ack=latest", "ack=d-0123456789ab.7", "cursor=latest", "wait=x", "limit=0", "max_bytes=0"] {
      #expect(throws: Problem.self, "\(bad)") {
        try withRequest("\(path)?\(bad)") { try ReceiveParameters($0, settings) }
      }
    }
  }

  /// The client has already waited at another gateway. This also shortens the gateway's own wait for the store, but not
  /// below 5 s.
  @Test func theWaitOfAForwardedRequestIsTheRemainingTime() throws {
    func waits(_ field: String) throws -> [TimeSpan] {
      try withRequest("/v1/messages?until=confirmed&wait=3", fields: field) { request in
        let parameters = try SendParameters(request, wait: .zero, maximum: .minutes(1))
        let receive = WaitParameter.left(of: .seconds(3), for: request)
        return [parameters.wait, receive, parameters.storeWait]
      }
    }
    #expect(try waits("") == [.seconds(3), .seconds(3), .seconds(30)])
    #expect(
      try waits("Drawbridge-Waited: 1200\r\n") == [.milliseconds(1800), .milliseconds(1800), .milliseconds(28_800)])
    #expect(try waits("Drawbridge-Waited: 3001\r\n") == [.zero, .zero, .milliseconds(26_999)])
    #expect(try waits("Drawbridge-Waited: 40000\r\n") == [.zero, .zero, .seconds(5)])
    let proxy = "X-Envoy-Expected-Rq-Timeout-Ms: 10000\r\n"
    #expect(try waits("\(proxy)Drawbridge-Waited: 9000\r\n") == [.zero, .zero, .milliseconds(500)])
  }

  @Test func theWaitIsTheShortestThatAnySideAllows() throws {
    let settings = APISettings().delivery
    func wait(_ query: String, _ fields: String = "") throws -> TimeSpan {
      try withRequest("/v1/messages?\(query)", fields: fields) { try PollParameters($0, settings, for: nil).wait }
    }
    #expect(try wait("") == .seconds(25))
    #expect(try wait("wait=500ms") == .milliseconds(500))
    #expect(try wait("wait=10m") == .seconds(55))
    #expect(try wait("", "Prefer: wait=7\r\n") == .seconds(7))
    #expect(try wait("wait=3", "Prefer: wait=7\r\n") == .seconds(3))
    #expect(try wait("", "x-envoy-expected-rq-timeout-ms: 10000\r\n") == .milliseconds(9500))
    #expect(try wait("", "x-envoy-expected-rq-timeout-ms: 100\r\n") == .milliseconds(50))
    #expect(try wait("", "x-envoy-expected-rq-timeout-ms: 1\r\n") < .milliseconds(1))
    // The field only shortens the wait. A value that is not a number of milliseconds is ignored.
    #expect(try wait("wait=3", "x-envoy-expected-rq-timeout-ms: 10000\r\n") == .seconds(3))
    for ignored in ["0", "-1", "+5", "1.5", "1e3", "soon", "", "100, 200", "18446744073709551616", "0x10"] {
      #expect(try wait("", "x-envoy-expected-rq-timeout-ms: \(ignored)\r\n") == .seconds(25), "\(ignored)")
    }
  }

  @Test func aProxyThatStatesItsTimeoutShortensTheWaitForTheStore() throws {
    func wait(_ fields: String) throws -> TimeSpan {
      try withRequest("/v1/messages", fields: fields) {
        try SendParameters($0, wait: .zero, maximum: .zero).storeWait
      }
    }
    #expect(try wait("") == API.storeWait)
    #expect(try wait("x-envoy-expected-rq-timeout-ms: 15000\r\n") == .milliseconds(14_500))
    #expect(try wait("x-envoy-expected-rq-timeout-ms: 60000\r\n") == API.storeWait)
  }

  @Test func everyProblemHasItsStatusInTheFileAndItsPlaceInTheDocument() throws {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().deletingLastPathComponent()
    let document = try String(contentsOf: root.appendingPathComponent("docs/errors.md"), encoding: .utf8)
    let operations = operations()
    #expect(!operations.isEmpty)
    for kind in Problem.Kind.allCases {
      let retry = kind.row.hasRetryAfter ? " with `Retry-After`" : ""
      #expect(document.contains("\n## \(kind.row.name)\n\(kind.row.status.rawValue)\(retry). "), "\(kind)")
      for operation in operations where Self.isPossible(kind, operation.method, operation.path) {
        #expect(
          operation.statuses.contains(Int(kind.row.status.rawValue)), "\(kind): \(operation.method) \(operation.path)")
      }
    }
    let sections = document.split(separator: "\n").filter { $0.hasPrefix("## ") }.map { String($0.dropFirst(3)) }
    #expect(Set(sections) == Set(Problem.Kind.allCases.map(\.row.name.description)))
    let names = String(decoding: OpenAPIDocument.text, as: UTF8.self).split(separator: "\n").filter {
      $0.hasPrefix("        - ") && !$0.contains("{")
    }.map { String($0.dropFirst(10)) }
    #expect(Set(names) == Set(sections))
  }

  /// Whether a well-formed request of this operation may get this problem. A new kind must be added here.
  private static func isPossible(_ kind: Problem.Kind, _ method: String, _ path: String) -> Bool {
    // A request for the history has no body and belongs to no session.
    if path == "/history" {
      return [.hostNotAllowed, .originNotAllowed, .invalidParameter, .notAcceptable].contains(kind)
    }
    if path == "/v1/reload" {
      return [
        .hostNotAllowed, .originNotAllowed, .invalidParameter, .notAcceptable, .tooManyRequests, .unauthorized,
        .insufficientScope, .accessNotConfigured,
      ].contains(kind) || kind == .shuttingDown && method == "POST"
    }
    let isConsumer = path.hasPrefix("/v1/consumers/")
    let takesBody =
      method == "PATCH" || method == "PUT" || method == "POST" && (!isConsumer || path.hasSuffix("/settle"))
    switch kind {
    // These problems are only for requests whose operation is not known, or whose method does not belong to the
    // operation.
    case .protocolError, .uriTooLong, .headerFieldsTooLarge, .unsupportedTransferCoding, .unsupportedVersion,
      .expectationFailed, .methodNotAllowed:
      return false
    case .hostNotAllowed, .originNotAllowed, .invalidParameter, .notAcceptable, .tooManyRequests: return true
    case .unauthorized, .insufficientScope, .accessNotConfigured: return path.hasPrefix("/v1/")
    // Without a default session, its paths do not exist.
    case .notFound: return path != "/v1/sessions" && path != "/openapi.yaml"
    case .sessionConflict: return path == "/v1/sessions/{name}" && (method == "PUT" || method == "DELETE")
    case .sessionNotOwned, .tooManySessions: return path == "/v1/sessions/{name}" && method == "PUT"
    case .requestTimeout, .contentTooLarge, .unsupportedMediaType: return takesBody
    case .invalidDocument: return takesBody && path != "/v1/messages"
    case .invalidText, .unsupportedEncoding, .queueFull, .upstreamDown: return method == "POST" && !isConsumer
    // Any gateway shows the state of a session, and closes it.
    case .sessionClosed:
      let isDocument = path == "/v1/session" || path == "/v1/sessions/{name}"
      return path.hasPrefix("/v1/") && path != "/v1/sessions" && (!isDocument || method == "PATCH" || method == "PUT")
    case .shuttingDown: return false
    case .tooManyBodies: return takesBody
    case .acknowledgementGone: return path == "/v1/messages" && method == "POST"
    case .tooManyKeys, .idempotencyKeyInProgress, .idempotencyKeyReused, .storeFailed:
      return path == "/v1/messages" && method == "POST"
    case .callsNotConfigured, .tooManyCalls, .replyTimeout, .upstreamClosed: return path == "/v1/call"
    case .tooManyConsumers: return method == "PUT" && isConsumer
    case .consumerConflict: return isConsumer && (method == "PUT" || path != "/v1/consumers/{consumer}")
    case .superseded: return path.hasSuffix("/receive")
    case .leaseLost: return path.hasSuffix("/settle")
    case .holderUnavailable:
      return path.hasPrefix("/v1/") && path != "/v1/sessions" && (path != "/v1/messages" || method == "POST")
    case .outcomeUnknown: return method == "POST"
    }
  }

  /// Every HTTP error, in the order of declaration. The switch has no default, so that a new error must be added here.
  private static func successor(of error: HTTPProtocolError?) -> HTTPProtocolError? {
    switch error {
    case nil: .tlsHandshake
    case .tlsHandshake: .proxyHeader
    case .proxyHeader: .requestLineTooLong(limit: 1)
    case .requestLineTooLong: .malformedRequestLine
    case .malformedRequestLine: .malformedMethod
    case .malformedMethod: .methodNotSupported
    case .methodNotSupported: .malformedTarget
    case .malformedTarget: .targetFormNotAllowed
    case .targetFormNotAllowed: .malformedVersion
    case .malformedVersion: .versionNotSupported
    case .versionNotSupported: .tooManyEmptyLines(limit: 1)
    case .tooManyEmptyLines: .headTooLarge(limit: 1)
    case .headTooLarge: .tooManyFields(limit: 1)
    case .tooManyFields: .bareLineFeed
    case .bareLineFeed: .bareCarriageReturn
    case .bareCarriageReturn: .forbiddenByte(0)
    case .forbiddenByte: .whitespaceBeforeColon
    case .whitespaceBeforeColon: .whitespaceBeforeFirstField
    case .whitespaceBeforeFirstField: .foldedField
    case .foldedField: .malformedFieldName
    case .malformedFieldName: .missingColon
    case .missingColon: .repeatedField(.host)
    case .repeatedField: .missingHost
    case .missingHost: .malformedHost
    case .malformedHost: .malformedContentLength
    case .malformedContentLength: .missingContentLength
    case .missingContentLength: .repeatedContentLength
    case .repeatedContentLength: .contentLengthWithTransferEncoding
    case .contentLengthWithTransferEncoding: .transferCodingNotSupported
    case .transferCodingNotSupported: .malformedTransferEncoding
    case .malformedTransferEncoding: .transferEncodingInHTTP10
    case .transferEncodingInHTTP10: .contentTooLarge(limit: 1)
    case .contentTooLarge: .malformedChunkSize
    case .malformedChunkSize: .malformedChunkExtension
    case .malformedChunkExtension: .chunkExtensionTooLong(limit: 1)
    case .chunkExtensionTooLong: .chunkOverheadTooLarge(limit: 1)
    case .chunkOverheadTooLarge: .missingChunkEnd
    case .missingChunkEnd: .trailersTooLarge(limit: 1)
    case .trailersTooLarge: .tooManyTrailers(limit: 1)
    case .tooManyTrailers: .forbiddenTrailer(.host)
    case .forbiddenTrailer: .expectationNotSupported
    case .expectationNotSupported: .truncatedMessage
    // These are errors in responses, which clients do not send.
    case .truncatedMessage, .malformedStatusLine: nil
    }
  }

  @Test func everyHTTPErrorHasAProblemWithItsStatus() {
    var count = 0
    var error = Self.successor(of: nil)
    while let each = error {
      #expect(each.kind.row.status == each.status, "\(each)")
      count += 1
      error = Self.successor(of: each)
    }
    #expect(count > 35)
  }
}
