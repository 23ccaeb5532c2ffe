import ByteStreams
import HTTPCodec
import HTTPServer
import Reactor
import Testing

@testable import API

/// Which requests are refused because a web page may have caused them.
@Suite struct BrowserAccessTests {
  private func kind(
    host: String?, _ fields: String = "", on reach: HTTPListener.Reach = .loopback, hosts: [String] = [],
    origins: [String] = [], target: String = "/v1/messages", isSecure: Bool = false
  ) throws -> Problem.Kind? {
    var settings = APISettings()
    settings.hosts = hosts
    settings.origins = origins
    let access = BrowserAccess(settings)
    var connection = HTTPServerConnection()
    let line = host.map { "Host: \($0)\r\n" } ?? ""
    connection.receive(Array("GET \(target) HTTP/1.\(host == nil ? 0 : 1)\r\n\(line)\(fields)\r\n".utf8).span)
    let event = try connection.nextEvent()
    #expect(event == .head)
    var accepted = AcceptedHost()
    return access.refusal(of: connection.request, on: reach, isSecure: isSecure, &accepted)?.kind
  }

  @Test(arguments: [
    ("https://localhost", true), ("https://localhost:443", true), ("HTTPS://LocalHost", true),
    ("http://localhost", false), ("https://localhost:80", false), ("https://localhost:8443", false),
  ])
  func overHTTPSTheOriginOfTheGatewayHasTheSchemeHTTPS(origin: String, isOwn: Bool) throws {
    let field = "Origin: \(origin)\r\n"
    #expect(try kind(host: "localhost", field, isSecure: true) == (isOwn ? nil : .originNotAllowed))
    #expect(try kind(host: "localhost:443", field, isSecure: true) == (isOwn ? nil : .originNotAllowed))
  }

  @Test func anAcceptedHostIsAcceptedForThisListenerReachOnly() throws {
    let access = BrowserAccess(APISettings())
    var accepted = AcceptedHost()
    func kind(_ host: String, _ reach: HTTPListener.Reach) throws -> Problem.Kind? {
      var connection = HTTPServerConnection()
      connection.receive(Array("GET / HTTP/1.1\r\nHost: \(host)\r\n\r\n".utf8).span)
      let event = try connection.nextEvent()
      #expect(event == .head)
      return access.refusal(of: connection.request, on: reach, &accepted)?.kind
    }
    for _ in 0..<2 {
      #expect(try kind("evil.example", .network) == nil)
      #expect(try kind("evil.example", .loopback) == .hostNotAllowed)
      #expect(try kind("127.0.0.1:8080", .loopback) == nil)
      #expect(try kind("127.0.0.1:8081", .loopback) == nil)
      #expect(try kind("evil.example", .loopback) == .hostNotAllowed)
    }
  }

  @Test(arguments: [
    "localhost", "LocalHost:1", "localhost:", "127.0.0.1", "127.0.0.1:8080", "127.255.255.254:80", "[::1]",
    "[::1]:8080", "[0:0::1]", "[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]:8080", "",
  ])
  func aLoopbackListenerAcceptsLoopbackHosts(host: String) throws { #expect(try kind(host: host) == nil) }

  @Test(arguments: [
    "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "127.evil.example",
    "128.0.0.1",
    "0.0.0.0:8080", "10.0.0.1", "[::]", "[::2]:80", "[::ffff:10.0.0.1]", "notlocalhost", "local%68ost",
  ])
  func aLoopbackListenerRefusesOtherHosts(host: String) throws {
    #expect(try kind(host: host) == .hostNotAllowed)
    #expect(try kind(host: host, on: .local) == nil)
    #expect(try kind(host: host, on: .network) == nil)
  }

  @Test func aRequestWithoutHostIsNotFromABrowser() throws { #expect(try kind(host: nil) == nil) }

  @Test func theHostOfAnAbsoluteTargetDecides() throws {
    #expect(try kind(host: "localhost", target: "http://evil.example/v1/messages") == .hostNotAllowed)
    #expect(try kind(host: "evil.example", target: "http://localhost/v1/messages") == nil)
  }

  @Test func theSettingAddsHostsOnAnyPort() throws {
    for host in ["gateway.example.org", "Gateway.Example.org:443"] {
      #expect(try kind(host: host, hosts: ["gateway.example.org"]) == nil)
    }
    #expect(try kind(host: "other.example.org", hosts: ["gateway.example.org"]) == .hostNotAllowed)
    #expect(try kind(host: "localhost", hosts: ["gateway.example.org"]) == nil)
  }

  @Test func aPublicListenerWithTheSettingStillAcceptsProbesByAddress() throws {
    for host in ["10.2.3.4:9090", "[2001:db8::1]:9090", "localhost", "gateway.example.org"] {
      #expect(try kind(host: host, on: .network, hosts: ["gateway.example.org"]) == nil)
    }
    #expect(try kind(host: "evil.example", on: .network, hosts: ["gateway.example.org"]) == .hostNotAllowed)
  }

  @Test(arguments: [
    ("localhost:8080", "http://localhost:8080"), ("127.0.0.1", "http://127.0.0.1"),
    ("localhost:80", "http://localhost"),
    ("localhost", "http://localhost:80"), ("[::1]:8080", "http://[::1]:8080"),
  ])
  func theOriginOfTheGatewayIsAllowed(host: String, origin: String) throws {
    #expect(try kind(host: host, "Origin: \(origin)\r\nSec-Fetch-Site: same-origin\r\n") == nil)
  }

  @Test(arguments: [
    "null", "https://localhost:8080", "http://localhost:3000", "http://localhost", "http://evil.example",
    "localhost:8080",
    "http://localhost:8080.evil.example", "http://localhost:8080/", "",
  ])
  func aForeignOriginIsRefusedOnEveryListener(origin: String) throws {
    for reach in [HTTPListener.Reach.local, .loopback, .network] {
      #expect(try kind(host: "localhost:8080", "Origin: \(origin)\r\n", on: reach) == .originNotAllowed)
    }
  }

  @Test func anAllowedOriginIsCrossSiteAndAccepted() throws {
    let fields = "Origin: https://app.example.org\r\nSec-Fetch-Site: cross-site\r\n"
    #expect(try kind(host: "localhost", fields, origins: ["https://App.example.org"]) == nil)
    #expect(try kind(host: "localhost", fields, origins: ["https://app.example.org:444"]) == .originNotAllowed)
  }

  @Test func requestsOfForeignPagesAreRefusedEvenWithoutOrigin() throws {
    for site in ["cross-site", "same-site"] {
      #expect(try kind(host: "localhost", "Sec-Fetch-Site: \(site)\r\n") == .originNotAllowed)
      // After a redirect through a foreign page, `Origin` is still the origin of the first page.
      let fields = "Origin: http://localhost\r\nSec-Fetch-Site: \(site)\r\n"
      #expect(try kind(host: "localhost", fields) == .originNotAllowed)
    }
    for site in ["none", "same-origin", "a-later-word"] {
      #expect(try kind(host: "localhost", "Sec-Fetch-Site: \(site)\r\n") == nil)
    }
  }
}
