import ByteStreams
import Configuration
import Foundation
import HTTPCodec
import HTTPServer
import Sessions
import Testing
import Upstream
import UpstreamProtocol
import UpstreamSession

@testable import API

/// Requests and their responses: paths, methods, sessions, and the response of each route.
@Suite struct RouteTests {
  @Test func aSessionHasTwoNamesAndNoPathEndsInASlash() throws {
    let api = try APIFixture()
    let id = try #require(try api.post("a").text("id"))
    for path in [
      "/v1/session", "/v1/sessions", "/v1/sessions/default", "/v1/messages", "/v1/sessions/default/messages",
      "/openapi.yaml", "/v1/deliveries/\(id)", "/v1/sessions/default/deliveries/\(id)",
    ] {
      let wait = path.hasSuffix("messages") ? "?wait=0" : ""
      #expect(try api.respond("GET", path + wait).status == 200, "\(path)")
      #expect(try api.respond("GET", path + "/").status == 404, "\(path)/")
    }
    for path in ["/livez", "/startupz", "/metrics"] {
      #expect(try api.respond("GET", path, "", .management).status != 404, "\(path)")
      #expect(try api.respond("GET", path + "/", "", .management).status == 404, "\(path)/")
    }
    for path in ["/v1/sessions/other", "/v1/sessions/default/session", "/v1", "/v1/", "/", "/livez", "/v1/other"] {
      #expect(try api.respond("GET", path).problem == "not-found", "\(path)")
    }
    #expect(try api.respond("GET", "/v1/messages?wait=0", "", .management).status == 200)
    for path in ["/openapi.yaml", "/v1", "/v1/", "/v1/other", "/V1/session"] {
      #expect(try api.respond("GET", path, "", .management).problem == "not-found", "\(path)")
    }
  }

  @Test func aPathWithEncodedUnreservedCharactersIsTheSamePath() throws {
    let api = try APIFixture()
    #expect(try api.respond("GET", "/v1/%73ession").status == 200)
    #expect(try api.respond("GET", "/v1/sessions/%64efault").status == 200)
    #expect(try api.respond("GET", "/v1%2Fsession").status == 404)
  }

  @Test func noRouteIgnoresAQueryParameter() throws {
    let api = try APIFixture { $0.session.upstream.conventions.correlation = .jsonRPC }
    let id = try #require(try api.post("a").text("id"))
    _ = try api.put("workers", "{}")
    let variables = ["{id}": id, "{consumer}": "workers", "{name}": "default", "{type}": "not-found"]
    for route in api.api.table.routes {
      let path = variables.reduce(route.path.description) { $0.replacingOccurrences(of: $1.key, with: $1.value) }
      func response(_ query: String) throws -> Received {
        let head = "\(route.method.name) \(path)\(query) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        let listener: HTTPListener = route.listeners == .management ? .management : .loopback
        let (outcome, response) = try api.send(Array(head.utf8), listener)
        if case .wait(let request) = outcome { request.abandon() }
        return response
      }
      for query in ["?colour=red", "?colour", "?&colour=red", "?%63olour=red", "?colour=%00"] {
        let refused = try response(query)
        #expect(refused.problem == "invalid-parameter", "\(route.method.name) \(path)\(query)")
        let detail = refused.text("detail") ?? ""
        #expect(detail.contains("'colour'"), "\(detail)")
        if query != "?colour=%00" { #expect(detail.contains("\(route.method.name) \(path) accepts"), "\(detail)") }
      }
      for query in ["", "?", "?&&"] {
        #expect(try response(query).text("detail")?.contains("query parameter") != true, "\(path)\(query)")
      }
    }
    let poll = try api.respond("GET", "/v1/messages?waits=1").text("detail")
    #expect(
      poll
        == "query parameter 'waits' is unknown: GET /v1/messages accepts cursor, since, last, wait, limit, max_bytes, topic, stream, events, data and namespace"
    )
    // The parameter exists, but not for this path.
    let limit = try api.respond("GET", "/v1/session?limit=1").text("detail")
    #expect(limit == "query parameter 'limit' is unknown: GET /v1/session accepts none")
    for path in ["/v1/messages", "/v1/deliveries/\(id)"] {
      let repeated = try api.respond("GET", path + "?wait=0&w%61it=0").text("detail")
      #expect(repeated == "query parameter 'wait' is repeated: give it once")
    }
    // A preflight is sent to the URL of the actual request, including its query.
    #expect(try api.respond("OPTIONS", "/v1/messages?wait=1").status == 204)
  }

  @Test func theResponseToAWrongMethodListsTheRightMethods() throws {
    let api = try APIFixture()
    let response = try api.respond("DELETE", "/v1/messages")
    #expect(response.problem == "method-not-allowed")
    #expect(response.field("Allow") == "GET, HEAD, POST, OPTIONS")
    #expect(try api.respond("OPTIONS", "/v1/session").field("Allow") == "GET, HEAD, PATCH, OPTIONS")
    #expect(try api.respond("OPTIONS", "*").field("Allow") == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
  }

  @Test func eachSessionHasItsOwnMessagesAndDeliveries() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    let market = try api.post("a", to: "/v1/sessions/market/messages")
    #expect(market.status == 202 && market.text("session") == "market")
    let id = try #require(market.text("id"))
    #expect(market.field("Location") == "/v1/sessions/market/deliveries/\(id)")
    let delivery = try api.respond("GET", "/v1/sessions/market/deliveries/\(id)")
    #expect(delivery.text("session") == "market" && delivery.text("state") == "queued")
    #expect(try api.respond("GET", "/v1/deliveries/\(id)").problem == "not-found")
    #expect(try api.session("market").upstream.snapshot().queuedMessages == 1)
    #expect(try api.session().upstream.snapshot().queuedMessages == 0)

    let ours = try api.post("b")
    #expect(ours.text("session") == "default")
    #expect(ours.field("Location") == "/v1/deliveries/\(try #require(ours.text("id")))")

    try api.session("market").inbox.append(Array("news".utf8).span, kind: .text, time: 0, now: api.now)
    #expect(try api.respond("GET", "/v1/sessions/market/messages?cursor=earliest&wait=0").body.contains("news"))
    #expect(try !api.respond("GET", "/v1/messages?cursor=earliest&wait=0").body.contains("news"))
    #expect(try api.respond("GET", "/v1/sessions/market").text("session") == "market")
  }

  @Test func theResponseForAnUnknownSessionListsTheSessions() throws {
    let api = try APIFixture(sessions: ["default", "b", "c", "d", "e", "f", "g"])
    let response = try api.respond("GET", "/v1/sessions/nosuch/messages")
    #expect(response.problem == "not-found")
    let detail = try #require(response.text("detail"))
    #expect(detail.contains("'nosuch'") && detail.contains("default, b, c, d, e and 2 more"), "\(detail)")
  }

  @Test func withoutADefaultSessionItsPathsListTheOtherSessions() throws {
    let api = try APIFixture(sessions: ["market"])
    for path in ["/v1/messages", "/v1/session", "/v1/deliveries/d-0123456789ab.1"] {
      let response = try api.respond("GET", path)
      #expect(response.problem == "not-found", "\(path)")
      #expect(response.text("detail")?.contains("the only session is market") == true, "\(response.body)")
    }
    #expect(try api.respond("GET", "/v1/sessions/market").status == 200)
  }

  @Test func theListOfSessionsShowsNoCredentials() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    let response = try api.respond("GET", "/v1/sessions")
    let sessions = try #require(response.json["sessions"] as? [[String: Any]])
    func texts(_ member: String) -> [String?] { sessions.map { $0[member] as? String } }
    #expect(texts("session") == ["default", "market"] && texts("state") == ["stopped", "stopped"])
    #expect(texts("desired") == ["down", "down"])
    #expect(texts("upstream") == ["ws://127.0.0.1:1/", "ws://127.0.0.1:1/"])
    #expect(!response.body.contains("secret"))
  }

  @Test func aPATCHChangesTheDesiredStateOfItsSession() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    let request = "PATCH /v1/sessions/market HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n"
    #expect(try api.respond(request + #"{"desired":"up"}"#).text("desired") == "up")
    #expect(try api.session("market").upstream.snapshot().desired == .up)
    #expect(try api.session().upstream.snapshot().desired == .down)
  }

  @Test func noResponseMayBeCached() throws {
    let api = try APIFixture()
    for (target, listener) in [
      ("/v1/session", HTTPListener.loopback), ("/v1/messages?wait=0", .loopback), ("/nowhere", .loopback),
      ("/openapi.yaml", .loopback), ("/livez", .management), ("/metrics", .management), ("/", .management),
    ] {
      let response = try api.respond("GET", target, "", listener)
      #expect(response.field("Cache-Control") == "no-store", "\(target)")
      #expect(response.field("X-Content-Type-Options") == "nosniff", "\(target)")
      #expect(response.field("Content-Type") != nil, "\(target)")
    }
  }

  // MARK: Management

  @Test func aGatewayIsReadyWhenOneOfItsSessionsIs() throws {
    var api = try APIFixture()
    #expect(try api.respond("GET", "/readyz", "", .management).body == "starting\n")
    #expect(try api.respond("GET", "/startupz", "", .management).status == 503)
    api.lifecycle.enter(.serving)
    let alone = try api.respond("GET", "/readyz", "", .management)
    #expect(alone.status == 503 && alone.body == "upstream not connected\n")
    #expect(try api.respond("GET", "/startupz", "", .management).status == 200)
    api.lifecycle.enter(.draining)
    #expect(try api.respond("GET", "/readyz", "", .management).body == "draining\n")
    #expect(try api.respond("GET", "/livez", "", .management).status == 200)

    api = try APIFixture(sessions: ["default", "market"])
    api.lifecycle.enter(.serving)
    let none = try api.respond("GET", "/readyz", "", .management)
    #expect(none.status == 503)
    #expect(
      none.body
        == "upstream not connected\nsession default: upstream not connected\nsession market: upstream not connected\n")
  }

  @Test func readinessWithoutTheUpstreamNeedsOnlyAServingGateway() throws {
    let api = try APIFixture()
    let target = "/readyz?exclude=upstream"
    #expect(try api.respond("GET", target, "", .management).body == "starting\n")
    api.lifecycle.enter(.serving)
    #expect(try api.respond("GET", target, "", .management).status == 200)
    #expect(try api.respond("HEAD", target, "", .management).status == 200)
    #expect(try api.respond("GET", "/readyz", "", .management).status == 503)
    api.lifecycle.enter(.draining)
    let draining = try api.respond("GET", target, "", .management)
    #expect(draining.status == 503 && draining.body == "draining\n")
    for query in ["exclude=", "exclude=store", "exclude=upstream&exclude=upstream"] {
      #expect(try api.respond("GET", "/readyz?\(query)", "", .management).problem == "invalid-parameter", "\(query)")
    }
  }

  @Test func theStatusPageShowsEverySession() throws {
    let page = try APIFixture(sessions: ["default", "market"]).respond("GET", "/", "", .management).body
    #expect(page.contains("drawbridge 1.2.3") && page.contains("default: stopped") && page.contains("market: stopped"))
    let alone = try APIFixture().respond("GET", "/", "", .management).body
    #expect(alone.contains("session      stopped, requested by an operator\n"))
  }
}
