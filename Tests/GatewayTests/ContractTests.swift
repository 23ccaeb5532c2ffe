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
      let target = path.replacingOccurrences(of: "{id}", with: "0123456789ab.1")
      let declared = Set(operations.filter { $0.path == path }.map(\.method))
      for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
        let served = try withRequest(method, target) { isServed(Route.find($0, for: .client, epoch: "0123456789ab")) }
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
    let send = operations().first { $0.method == "POST" }?.statuses ?? []
    let kinds: [Problem.Kind] = [
      .requestTimeout, .invalidParameter, .invalidText, .unsupportedMediaType, .unsupportedEncoding, .contentTooLarge,
      .queueFull, .upstreamDown, .sessionClosed,
    ]
    for kind in kinds { #expect(send.contains(Int(kind.status.rawValue)), "\(kind)") }
    let change = operations().first { $0.method == "PATCH" }?.statuses ?? []
    for kind: Problem.Kind in [.invalidDocument, .contentTooLarge, .unsupportedMediaType, .requestTimeout] {
      #expect(change.contains(Int(kind.status.rawValue)), "\(kind)")
    }
    for kind in kinds + [.invalidDocument, .protocolError, .notFound, .methodNotAllowed, .expectationFailed] {
      #expect(document.contains("\n## \(kind.name)\n"), "\(kind)")
    }
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
