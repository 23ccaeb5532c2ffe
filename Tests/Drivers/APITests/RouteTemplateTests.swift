import Foundation
import HTTPCodec
import Testing

@testable import API

/// The route templates in the access log.
@Suite struct RouteTemplateTests {
  private func template(of target: String, _ method: String = "GET") throws -> String {
    var connection = HTTPServerConnection()
    connection.receive(Array("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    return try APIFixture().api.route(of: connection.request).description
  }

  @Test func everyPathOfTheDocumentIsATemplate() throws {
    // Requests for the paths of management listeners are not in the access log.
    let paths = Set(ContractOperation.all().filter { !$0.isManagement }.map(\.path))
    #expect(paths.count >= 6)
    let consumers = paths.filter { $0.hasPrefix("/v1/consumers") }.map { $0.dropFirst(3) }
    #expect(consumers.count == 6)
    let named = (["", "/messages", "/deliveries/{id}"] + consumers).map { "/v1/sessions/{name}" + $0 }
    for path in Set(paths + named) {
      let target = path.replacing(/\{\w+\}/, with: "some-thing_1")
      #expect(try template(of: target) == path)
      #expect(try template(of: target + "?token=SECRET", "PUT") == path, "whatever the method and the query")
      #expect(try template(of: "http://localhost\(target)") == path)
    }
  }

  @Test func percentEncodedLettersAreTheSamePath() throws {
    #expect(try template(of: "/v1/%6Dessages") == "/v1/messages")
    #expect(try template(of: "/v1/deliveries/%2F") == "/v1/deliveries/{id}")
  }

  @Test(arguments: [
    "/", "/v1", "/v1/", "/v2/messages", "/v1/messages/", "/v1/messages/x", "/v1/deliveries/", "/v1/deliveries/a/b",
    "/v1/sessions/", "/v1/sessions/a/", "/v1/sessions//messages", "/v1/sessions/a/messages/b", "/v1/sessions/a/b",
    "/v1/consumers/", "/v1/consumersx", "/v1/consumers/a/", "/v1/consumers//dead", "/v1/consumers/a/dead/",
    "/v1/consumers/a/dead/retry/b", "/v1/consumers/a/b", "/v1/sessions/a/consumers/b/c",
    "/errors/", "/errors/a/b", "/SECRET", "/livez",
  ])
  func anyOtherPathIsNotShown(path: String) throws {
    #expect(try template(of: path) == "-")
  }
}
