import Access
import Testing

@Suite struct GrantTests {
  @Test func theOpenGrantAllowsEverythingForEver() {
    let grant = Grant.open
    #expect(grant.principal == "" && grant.number == 0)
    #expect(grant.scopes.contains([.send, .receive, .call, .admin]))
    #expect(grant.sessions == .all && grant.topics == .all)
    #expect(!grant.isExpired(at: .max) && !grant.isRevoked)
  }

  @Test func aGrantExpiresAtItsTime() {
    let grant = Grant(principal: "a", scopes: .send, expires: 1_000)
    #expect(!grant.isExpired(at: 999))
    #expect(grant.isExpired(at: 1_000))
  }

  @Test func aRevocationEndsAllItsGrants() {
    let revocation = Revocation()
    let first = Grant(principal: "a", scopes: .send, revocation: revocation)
    let second = Grant(principal: "b", scopes: .send, revocation: revocation)
    let other = Grant(principal: "c", scopes: .send)
    revocation.revoke()
    #expect(first.isRevoked && second.isRevoked && !other.isRevoked)
  }

  @Test func eachPrincipalHasItsOwnNumber() {
    let numbers = (0..<100).map { Grant(principal: "client \($0)", scopes: []).number }
    #expect(Set(numbers).count > 95)
    #expect(numbers == (0..<100).map { Grant(principal: "client \($0)", scopes: .all).number })
  }

  @Test(
    arguments: [
      ("", []), ("send", .send), ("receive", .receive), ("call", .call), ("admin", .admin),
      ("openid send  receive email", [.send, .receive]), ("Send sendx send,receive", []), (" call ", .call),
    ] as [(String, Scopes)])
  func scopesOfOtherApplicationsAreIgnored(text: String, expected: Scopes) {
    let scopes = Scopes(listedIn: text.utf8Span.span)
    #expect(scopes == expected)
  }
}
