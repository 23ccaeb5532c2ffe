import ByteStreams
import Testing

@testable import UpstreamSession

/// Several URLs, some of which are paused: the session uses the other URLs.
@Suite struct EndpointTests {
  private func session(urls: Int) -> Dialogue {
    let session = Dialogue {
      $0.backoff.strategy = .fixed(.seconds(2))
      $0.endpoints.count = urls
    }
    _ = session.open()
    return session
  }

  @Test(arguments: [429, 503])
  func anotherURLIsUsedDuringARetryAfter(status: Int) {
    for wish in [TimeSpan.hours(1), nil] {
      let session = session(urls: 2)
      let actions = session.failed(.status(status, retryAfter: wish))
      #expect(actions == (wish == nil ? [] : ["hold host 0 3600.0"]) + ["resolving→backoff"])
      #expect(session.untilDial == .seconds(2))
      #expect(session.wait().last == "dial #2 url 1")
      session.becomeReady()
    }
  }

  /// A paused URL is not used before the end of its pause, even if the other URLs fail or it is the first URL.
  @Test func noURLIsUsedBeforeTheEndOfItsRetryAfter() {
    let session = session(urls: 2)
    let start = session.now
    _ = session.failed(.status(503, retryAfter: .seconds(600)))
    for dial in 2...40 {
      #expect(session.wait().last == "dial #\(dial) url 1")
      _ = session.failed(.network)
    }
    session.pass(.seconds(90))
    #expect(session.wait().last == "dial #41 url 1")
    session.becomeReady()
    session.pass(.seconds(120))
    _ = session.lost(.reset)
    #expect(session.wait().last == "dial #42 url 1", "the first URL is still paused")
    #expect(session.now - start < .seconds(600))
    session.becomeReady()
    session.pass(.seconds(600))
    _ = session.lost(.reset)
    #expect(session.wait().last == "dial #43")
  }

  @Test func theURLWithTheEarliestRetryAfterIsUsedFirst() {
    let session = session(urls: 3)
    for (wish, next) in [(3_600, "dial #2 url 1"), (20, "dial #3 url 2")] {
      _ = session.failed(.status(503, retryAfter: .seconds(Int64(wish))))
      #expect(session.wait().last == next)
    }
    _ = session.failed(.status(429, retryAfter: .seconds(600)))
    #expect((14...20).contains(session.untilDial?.seconds ?? 0), "the pause of the second URL ends first")
    #expect(session.wait().last == "dial #4 url 1")
  }

  @Test func newSettingsForgetTheRetryAfterOfOldURLs() {
    let session = session(urls: 2)
    _ = session.failed(.status(503, retryAfter: .hours(1)))
    #expect(session.reconfigure { _ in }.last == "dial #2")
  }
}
