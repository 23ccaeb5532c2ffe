import ByteStreams
import Configuration
import Foundation
import HTTPCodec
import Reactor
import Testing

@testable import Gateway

/// The file that is served as the contract, against what the server does.
@Suite struct ContractTests {
  /// Paths with their methods and, for each, the names of its query parameters and its statuses.
  private struct Operation {
    let path: String
    let method: String
    var queryParameters: [String] = []
    var statuses: Set<Int> = []
  }

  private func operations() -> [Operation] {
    var found: [Operation] = []
    var path = ""
    for line in String(decoding: OpenAPIDocument.text, as: UTF8.self).split(separator: "\n") {
      if line.hasPrefix("components:") { break }
      if line.hasPrefix("  /") { path = String(line.dropFirst(2).dropLast()) }
      if line.hasPrefix("    "), !line.hasPrefix("     "), line.hasSuffix(":") {
        found.append(Operation(path: path, method: line.dropFirst(4).dropLast().uppercased()))
      }
      if line.contains("in: query"), let start = line.firstRange(of: "{name: ") {
        found[found.count - 1].queryParameters.append(String(line[start.upperBound...].prefix { $0 != "," }))
      }
      if line.hasPrefix("        '"), let status = Int(line.dropFirst(9).prefix(3)) {
        found[found.count - 1].statuses.insert(status)
      }
    }
    return found
  }

  private func withRequest<Result>(
    _ method: String, _ target: String, fields: String = "", _ body: (borrowing HTTPRequestHead) throws -> Result
  ) throws -> Result {
    var connection = HTTPServerConnection()
    connection.receive(Array("\(method) \(target) HTTP/1.1\r\nHost: x\r\n\(fields)\r\n".utf8).span)
    let event = try connection.nextEvent()
    #expect(event == .head)
    return try body(connection.request)
  }

  private func isServed(_ route: Route) -> Bool {
    switch route {
    case .problem, .options: false
    case .sendMessage, .receiveMessages, .delivery, .session, .changeSession, .describe, .live, .ready, .started,
      .metrics, .status:
      true
    }
  }

  @Test func everyPathOfTheFileIsServedWithItsMethodsAndNoOthers() throws {
    let operations = operations()
    #expect(operations.count == 6)
    for path in Set(operations.map(\.path)) {
      let target = path.replacingOccurrences(of: "{id}", with: "d-0123456789ab.1")
      let declared = Set(operations.filter { $0.path == path }.map(\.method))
      for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
        let served = try withRequest(method, target) {
          isServed(Route.find($0, for: .client, deliveries: "d-0123456789ab."))
        }
        #expect(served == declared.contains(method), "\(method) \(path)")
      }
    }
  }

  @Test func thePollTakesTheQueryParametersOfTheFileAndNoOthers() throws {
    let settings = GatewaySettings().delivery
    let declared = operations().first { $0.path == "/v1/messages" && $0.method == "GET" }?.queryParameters ?? []
    #expect(Set(declared) == ["cursor", "wait", "limit", "max_bytes"])
    let values = ["cursor": "earliest", "wait": "1s", "limit": "5", "max_bytes": "10"]
    for name in declared {
      _ = try withRequest("GET", "/v1/messages?\(name)=\(values[name] ?? "")") { try PollParameters($0, settings) }
    }
    for bad in ["other=1", "wait=x", "wait=1&wait=2", "limit=0", "limit=-1", "max_bytes=", "cursor=nope"] {
      #expect(throws: ProblemError.self, "\(bad)") {
        try withRequest("GET", "/v1/messages?\(bad)") { try PollParameters($0, settings) }
      }
    }
  }

  @Test func theWaitIsTheShortestOfWhatAllSidesGrant() throws {
    let settings = GatewaySettings().delivery
    func wait(_ query: String, _ fields: String = "") throws -> TimeSpan {
      try withRequest("GET", "/v1/messages?\(query)", fields: fields) { try PollParameters($0, settings).wait }
    }
    #expect(try wait("") == .seconds(25))
    #expect(try wait("wait=500ms") == .milliseconds(500))
    #expect(try wait("wait=10m") == .seconds(55))
    #expect(try wait("", "Prefer: wait=7\r\n") == .seconds(7))
    #expect(try wait("wait=3", "Prefer: wait=7\r\n") == .seconds(3))
    #expect(try wait("", "x-envoy-expected-rq-timeout-ms: 10000\r\n") == .milliseconds(9500))
    #expect(try wait("", "x-envoy-expected-rq-timeout-ms: 100\r\n") == .zero)
  }

  @Test func everyProblemHasItsStatusInTheFileAndItsPlaceInTheDocument() throws {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    let document = try String(contentsOf: root.appendingPathComponent("docs/errors.md"), encoding: .utf8)
    let operations = operations()
    #expect(!operations.isEmpty)
    for kind in Problem.Kind.allCases {
      #expect(document.contains("\n## \(kind.name)\n\(kind.status.rawValue)"), "\(kind)")
      for operation in operations where Self.isPossible(kind, operation.method, operation.path) {
        #expect(
          operation.statuses.contains(Int(kind.status.rawValue)), "\(kind): \(operation.method) \(operation.path)")
      }
    }
    let sections = document.split(separator: "\n").filter { $0.hasPrefix("## ") }.map { String($0.dropFirst(3)) }
    #expect(Set(sections) == Set(Problem.Kind.allCases.map(\.name.description)))
  }

  /// Whether a well-formed request of this operation may get this problem. A kind that is new must be decided on here.
  private static func isPossible(_ kind: Problem.Kind, _ method: String, _ path: String) -> Bool {
    let takesBody = method == "POST" || method == "PATCH"
    switch kind {
    // Before there is a request whose operation is known, or for methods that are none of the operation.
    case .protocolError, .uriTooLong, .headerFieldsTooLarge, .unsupportedTransferCoding, .unsupportedVersion,
      .expectationFailed, .methodNotAllowed:
      return false
    case .hostNotAllowed, .originNotAllowed, .invalidParameter: return true
    case .notFound: return path.contains("{")
    case .requestTimeout, .contentTooLarge, .unsupportedMediaType: return takesBody
    case .invalidDocument: return method == "PATCH"
    case .invalidText, .unsupportedEncoding, .queueFull, .tooManyBodies, .upstreamDown, .sessionClosed:
      return method == "POST"
    }
  }

  @Test func everyErrorOfHTTPHasAProblemOfItsStatus() {
    let errors: [HTTPProtocolError] = [
      .requestLineTooLong(limit: 1), .headTooLarge(limit: 1), .tooManyFields(limit: 1), .trailersTooLarge(limit: 1),
      .tooManyTrailers(limit: 1), .contentTooLarge(limit: 1), .chunkExtensionTooLong(limit: 1),
      .chunkOverheadTooLarge(limit: 1), .expectationNotSupported, .methodNotSupported, .transferCodingNotSupported,
      .versionNotSupported, .malformedTarget, .missingHost, .truncatedMessage, .repeatedField(.host),
    ]
    for error in errors { #expect(error.kind.status == error.status, "\(error)") }
  }

  @Test func aSessionHasTwoNamesAndNoPathEndsInASlash() throws {
    func route(_ target: String, _ role: HTTPConnection.Role = .client) throws -> Bool {
      try withRequest("GET", target) { isServed(Route.find($0, for: role, deliveries: "d-0123456789ab.")) }
    }
    for path in [
      "/v1/session", "/v1/sessions/default", "/v1/messages", "/v1/sessions/default/messages", "/openapi.yaml",
      "/v1/deliveries/d-0123456789ab.1", "/v1/sessions/default/deliveries/d-0123456789ab.1",
    ] {
      #expect(try route(path), "\(path)")
      #expect(try !route(path + "/"), "\(path)/")
    }
    for path in ["/livez", "/readyz", "/startupz", "/metrics"] {
      #expect(try route(path, .management), "\(path)")
      #expect(try !route(path + "/", .management), "\(path)/")
    }
    for path in ["/v1/sessions", "/v1/sessions/other", "/v1/sessions/default/session", "/v1", "/v1/", "/"] {
      #expect(try !route(path), "\(path)")
    }
  }

  @Test func noRouteIgnoresAQueryParameter() throws {
    let targets: [(String, String, HTTPConnection.Role)] = [
      ("POST", "/v1/messages", .client), ("GET", "/v1/session", .client), ("PATCH", "/v1/session", .client),
      ("GET", "/v1/sessions/default", .client), ("GET", "/openapi.yaml", .client),
      ("GET", "/v1/deliveries/d-0123456789ab.1", .client), ("GET", "/", .management), ("GET", "/livez", .management),
      ("HEAD", "/readyz", .management), ("GET", "/startupz", .management), ("GET", "/metrics", .management),
    ]
    for (method, path, role) in targets {
      func problem(_ query: String) throws -> Problem? {
        try withRequest(method, path + query) {
          if case .problem(let problem) = Route.find($0, for: role, deliveries: "d-0123456789ab.") {
            problem
          } else {
            nil
          }
        }
      }
      for query in ["?colour=red", "?colour", "?&colour=red", "?%63olour=red", "?colour=%00"] {
        guard let problem = try problem(query) else {
          Issue.record("\(method) \(path)\(query) is served")
          continue
        }
        #expect(problem.kind == .invalidParameter)
        #expect(
          problem.detail.contains("'colour'") && problem.detail.contains("\(method) \(path)"), "\(problem.detail)")
      }
      for query in ["", "?", "?&&"] { #expect(try problem(query) == nil, "\(method) \(path)\(query)") }
    }
    // A preflight is sent to the address of the request it asks for, its query included.
    let isOptions = try withRequest("OPTIONS", "/v1/messages?wait=1") {
      if case .options = Route.find($0, for: .client, deliveries: "") { true } else { false }
    }
    #expect(isOptions)
  }

  @Test(arguments: [
    ("127.0.0.1:80", "127.0.0.1:80"), (":80", "0.0.0.0:80"), ("localhost:80", "127.0.0.1:80"), ("[::1]:80", "[::1]:80"),
    ("unix:/run/x", "unix:/run/x"),
  ])
  func readsListenerAddresses(text: String, description: String) {
    #expect(ListenerAddress.parse(text)?.description == description)
  }

  @Test(arguments: [
    "", "80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "::1:80", "[::1]", "unix:", "example.org:80",
  ])
  func refusesWhatIsNoListenerAddress(text: String) { #expect(ListenerAddress.parse(text) == nil) }
}
