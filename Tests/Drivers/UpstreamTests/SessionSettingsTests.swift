import ByteStreams
import Configuration
import Outbox
import Testing
import UpstreamSession
import WebSocketCodec

@testable import Upstream

/// What the operator wrote, as the session's rules.
@Suite struct SessionSettingsTests {
  private func settings(_ change: (inout GatewaySettings.Upstream) -> Void = { _ in }) throws -> SessionSettings {
    var configured = GatewaySettings().upstream
    configured.url = "ws://first/"
    change(&configured)
    return try UpstreamSettings(configured).session
  }

  @Test func theDefaultsOfTheFileAreThoseOfTheMachine() throws {
    let ours = try settings()
    let machine = SessionSettings()
    #expect(ours.backoff == machine.backoff && ours.endpoints == machine.endpoints && ours.liveness == machine.liveness)
    #expect(ours.onDemand == machine.onDemand && ours.idleAfter == machine.idleAfter)
    #expect(ours.maximumAge == nil && ours.closing.ranges.isEmpty)
  }

  /// Each limit's reason stands in two places, at the codec and in the file: so must its value.
  @Test func theDefaultLimitsOfTheFileAreThoseOfTheCodec() throws {
    var configured = GatewaySettings()
    configured.upstream.url = "ws://first/"
    #expect(try UpstreamSettings(configured.upstream).limits == WebSocketLimits())
  }

  @Test func everyStrategyCanBeChosen() throws {
    func strategy(_ name: String) throws -> BackoffStrategy {
      try settings {
        $0.reconnect.strategy = name
        $0.reconnect.minimum = .milliseconds(1)
        $0.reconnect.base = .seconds(2)
        $0.reconnect.maximum = .seconds(3)
        $0.reconnect.factor = 1.5
        $0.reconnect.whenExhausted = "stop"
      }.backoff.strategy
    }
    let (least, base, most) = (TimeSpan.milliseconds(1), TimeSpan.seconds(2), TimeSpan.seconds(3))
    #expect(try strategy("fixed") == .fixed(base))
    #expect(try strategy("exponential") == .exponential(first: base, factor: 1.5, cap: most))
    #expect(try strategy("random") == .random(least: least, most: most))
    #expect(try strategy("full-jitter") == .fullJitter(least: least, base: base, cap: most))
    #expect(try strategy("decorrelated-jitter") == .decorrelatedJitter(base: base, cap: most))
    #expect(try strategy("doubling") == .doubling(step: base, cap: most, whenExhausted: .stop))
  }

  @Test func everyWordOfTheFileMeansSomethingOfItsOwn() throws {
    let ours = try settings {
      $0.fallbackURLs = ["ws://second/", "wss://third/"]
      $0.urlOrder = "round-robin"
      $0.onDemand = true
      $0.maximumAge = .hours(23)
      $0.reconnect.maximumAttempts = 7
      $0.closeCodes = ["4000: stop", "4001-4009: refresh-credential"].compactMap { CloseCodeRule($0) }
    }
    #expect(ours.endpoints.count == 3 && ours.endpoints.order == .roundRobin && ours.onDemand)
    #expect(ours.maximumAge == .hours(23) && ours.backoff.maximumAttempts == 7)
    #expect(ours.closing.ranges.map(\.codes) == [4000...4000, 4001...4009])
    #expect(ours.closing.ranges.map(\.reaction) == [.stop, .refreshCredential])
  }
}
