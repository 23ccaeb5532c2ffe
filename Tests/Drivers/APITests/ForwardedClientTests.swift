import Access
import ByteStreams
import HTTPServer
import Testing

@testable import API

@Suite struct ForwardedClientTests {
  private func text(_ client: ForwardedClient) -> String {
    var output = ByteQueue()
    client.write(into: &output)
    return output.bytes.text()
  }

  @Test func aForwardedClientIsReadAsItWasWritten() throws {
    for grant in [
      Grant.open, Grant(principal: "https://issuer a;b,c:é", scopes: [.send, .call]),
      Grant(
        principal: "x", scopes: [], sessions: try NamePatterns(["a", "b*"]), topics: .none, expires: 1_800_000_000_000),
    ] {
      for origin in [ClientOrigin.ipv4(0x0A00_0001), .ipv6(prefix: 0x2001_0DB8_0000_0001), .local] {
        let written = text(ForwardedClient(grant, from: origin))
        let found = ForwardedClient(Array(written.utf8).span)
        let read = try #require(found, "\(written)")
        #expect(read.grant.principal == grant.principal && read.grant.scopes == grant.scopes)
        #expect(read.grant.sessions == grant.sessions && read.grant.topics == grant.topics)
        #expect(read.grant.expires == grant.expires && read.origin == origin)
        #expect(!written.utf8.contains { $0 <= 0x20 || $0 >= 0x7F })
      }
    }
  }

  @Test(arguments: [
    "", ";", ";15;Kg==;Kg==;;", ";15;Kg==;Kg==;;4:", ";15;Kg==;Kg==;;4:100000000", ";15;Kg==;Kg==;;5:1",
    ";16;Kg==;Kg==;;local",
    ";-1;Kg==;Kg==;;local", ";;Kg==;Kg==;;local", "*;15;Kg==;Kg==;;local", ";15;*;Kg==;;local", ";15;,;Kg==;;local",
    ";15;Kg==;Kg==;x;local", ";15;Kg==;Kg==;;local;", ";15;Kg==;Kg==;;Local",
  ])
  func otherForwardedClientsAreRefused(text: String) {
    let client = ForwardedClient(Array(text.utf8).span)
    #expect(client == nil)
  }
}
