import API
import Testing

@testable import Configuration

/// `http.hosts` and `http.origins`.
@Suite struct HostAndOriginTests {
  @Test(arguments: ["a.example", "A.EXAMPLE", "10.0.0.1", "[::1]", "[2001:db8::1]", "a_b"])
  func readsHostsWithoutPort(text: String) throws {
    #expect(try load("http: {hosts: ['\(text)']}").settings.api.hosts == [text])
  }

  @Test(arguments: [" ", "a.example:80", "http://a.example", "a/b", "[::1", "[::1]:80", "*"])
  func anInvalidHostIsRefusedAtTheStart(text: String) {
    #expect(errors("http: {hosts: ['\(text)']}").count == 1)
    #expect(errors("http: {hosts: ['']}").count == 1)
  }

  @Test(arguments: ["https://app.example.org", "http://localhost:8080", "app+x://[::1]:1", "HTTPS://A"])
  func readsOrigins(text: String) throws {
    #expect(try load("http: {origins: ['\(text)']}").settings.api.origins == [text])
  }

  @Test(arguments: [" ", "a.example", "http://", "http://a.example/", "http://a.example/path", "null", "*", "://a"])
  func anInvalidOriginIsRefusedAtTheStart(text: String) {
    #expect(errors("http: {origins: ['\(text)']}").count == 1)
    #expect(errors("http: {origins: ['']}").count == 1)
  }
}
