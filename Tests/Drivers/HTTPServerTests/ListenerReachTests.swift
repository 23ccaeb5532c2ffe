import Host
import Reactor
import Testing

@testable import HTTPServer

@Suite struct ListenerReachTests {
  @Test func theReachOfAListenerFollowsFromItsAddress() throws {
    let cases: [(String, HTTPListener.Reach)] = [
      ("127.0.0.1:80", .loopback), ("127.9.9.9:80", .loopback), ("[::1]:80", .loopback),
      ("[::ffff:127.0.0.1]:80", .loopback),
      (":80", .network), ("[::]:80", .network), ("10.0.0.1:80", .network), ("128.0.0.1:80", .network),
      ("[2001:db8::1]:80", .network), ("unix:/run/x", .local),
    ]
    for (text, reach) in cases { #expect(try #require(ListenerAddress.parse(text)).reach == reach, "\(text)") }
  }
}
