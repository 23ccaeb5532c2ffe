import Configuration
import Host
import Journal
import Testing

@testable import API

/// The status of the store that operators see.
@Suite struct StoreStatusTests {
  private static func state(
    failure: String?, damage: String? = nil, cause: StoreState.Cause = .unreachable
  ) -> StoreState {
    var state = StoreState(failure: failure, since: ProcessInformation.wallClockMilliseconds() - 90_000)
    (state.damage, state.cause) = (damage, cause)
    return state
  }

  @Test func withoutAStoreTheStatusDoesNotMentionIt() throws {
    let api = try APIFixture()
    api.lifecycle.enter(.serving)
    #expect(try api.respond("GET", "/v1/session").body.contains("\"store\":null"))
    #expect(try !api.respond("GET", "/readyz", "", .management).body.contains("store"))
    #expect(try !api.respond("GET", "/", "Accept: text/plain\r\n", .management).body.contains("store"))
  }

  @Test func aWorkingStoreIsShown() throws {
    let api = try APIFixture(store: Self.state(failure: nil))
    api.lifecycle.enter(.serving)
    let session = try api.respond("GET", "/v1/session").body
    #expect(session.contains("\"store\":{\"state\":\"working\",\"seconds_in_state\":9"))
    #expect(session.contains("\"failure\":null"))
    #expect(try !api.respond("GET", "/readyz", "", .management).body.contains("store"))
    #expect(try api.respond("GET", "/", "Accept: text/plain\r\n", .management).body.contains("store        working\n"))
    #expect(
      try api.respond("GET", "/", "Accept: application/json\r\n", .management).body.contains("\"state\":\"working\""))
  }

  /// The other sessions are still served.
  @Test func aDamagedSessionIsNamed() throws {
    let api = try APIFixture(store: Self.state(failure: nil, damage: "session 'a' is damaged"))
    api.lifecycle.enter(.serving)
    let session = try api.respond("GET", "/v1/session").body
    #expect(session.contains("\"failure\":null,\"damage\":\"session 'a' is damaged\"}"))
    #expect(session.contains("\"state\":\"working\""))
    #expect(
      try api.respond("GET", "/", "Accept: text/plain\r\n", .management).body
        .contains("store        working, but session 'a' is damaged\n"))
  }

  /// Pushes are still served, so the probe does not fail.
  @Test func aStoreThatHasFailedIsNamedWithItsReason() throws {
    let api = try APIFixture(store: Self.state(failure: "the disk is full"))
    let works = try APIFixture(store: Self.state(failure: nil))
    for api in [api, works] { api.lifecycle.enter(.serving) }
    #expect(try api.respond("GET", "/v1/session").body.contains("\"failure\":\"the disk is full\""))
    let ready = try api.respond("GET", "/readyz", "", .management)
    #expect(ready.body.contains("the store does not work"))
    #expect(try ready.status == works.respond("GET", "/readyz", "", .management).status)
    let text = try api.respond("GET", "/", "Accept: text/plain\r\n", .management).body
    #expect(
      text.contains("store        failed for 90 s: the disk is full\n") || text.contains("store        failed for 91 s")
    )
  }

  /// Another gateway may still reach Redis, so this gateway must report that it is not ready. Only clients with
  /// credentials see the complete reason.
  @Test func aGatewayWithoutRedisIsNotReadyAndReportsTheReason() throws {
    for (cause, text) in [
      (StoreState.Cause.unreachable, "no connection to Redis\n"), (.refused, "Redis refuses writes\n"),
      (.tooFewReplicas, "too few replicas of Redis confirm writes\n"),
    ] {
      let api = try APIFixture(store: Self.state(failure: "10.0.0.1: secret", cause: cause)) {
        $0.store.engine = .redis
      }
      api.lifecycle.enter(.serving)
      let ready = try api.respond("GET", "/readyz?exclude=upstream", "", .management)
      #expect(ready.status == 503 && ready.body == text)
    }
  }
}
