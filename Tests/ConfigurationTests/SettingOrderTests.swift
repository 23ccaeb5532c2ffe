import API
import ByteStreams
import HTTPCodec
import HTTPServer
import Sessions
import Testing
import Upstream
import UpstreamSession

@testable import Configuration

/// Pairs of settings: the first setting must not exceed the second setting.
@Suite struct SettingOrderTests {
  @Test(arguments: [
    (
      "upstream: {reconnect: {minimum: 1m}}",
      "'upstream.reconnect.minimum' (1m) is above 'upstream.reconnect.maximum' (30s, the default)"
    ),
    (
      "upstream: {reconnect: {base: 3s, maximum: 2s}}",
      "'upstream.reconnect.base' (3s) is above 'upstream.reconnect.maximum' (2s)"
    ),
    ("delivery: {wait: 2m}", "'delivery.wait' (2m) is above 'delivery.maximum_wait' (55s, the default)"),
    ("delivery: {limit: 5, maximum_limit: 4}", "'delivery.limit' (5) is above 'delivery.maximum_limit' (4)"),
    (
      "delivery: {answer_bytes: 2MiB, maximum_answer_bytes: 1MiB}",
      "'delivery.answer_bytes' (2MiB) is above 'delivery.maximum_answer_bytes' (1MiB)"
    ),
    (
      "upstream: {queue: {low_water: 512KiB}}",
      "'upstream.queue.low_water' (512KiB) is above 'upstream.queue.high_water' (256KiB, the default)"
    ),
    (
      "http: {body_bytes: 2MiB, pending_body_bytes: 1MiB}",
      "'http.body_bytes' (2MiB) is above 'http.pending_body_bytes' (1MiB)"
    ),
    (
      "http: {request_line_bytes: 64KiB}",
      "'http.request_line_bytes' (64KiB) is above 'http.head_bytes' (32KiB, the default)"
    ),
  ])
  func anErrorNamesBothKeysAndValues(text: String, message: String) {
    let found = errors(text)
    #expect(found.count == 1 && found[0].hasPrefix("d.yaml:1:") && found[0].contains(message), "\(found)")
  }

  @Test func aDefaultAdaptsToASettingThatContradictsIt() throws {
    let text = """
      http: {head_bytes: 4KiB}
      upstream: {reconnect: {maximum: 50ms}, queue: {high_water: 32KiB}}
      delivery: {maximum_wait: 10s, maximum_limit: 3, maximum_answer_bytes: 4KiB}

      """
    let settings = try load(text).settings
    #expect(settings.http.limits.requestLineBytes == 4096 && settings.session.upstream.lowWater == 32 << 10)
    #expect(settings.session.upstream.session.backoff.minimum == .milliseconds(50))
    #expect(settings.session.upstream.session.backoff.base == .milliseconds(50))
    #expect(settings.api.delivery.wait == .seconds(10) && settings.api.delivery.limit == 3)
    #expect(settings.api.delivery.answerBytes == 4096)
  }

  @Test func onlyTheLimitsThatAStrategyUsesAreCompared() {
    #expect(errors("upstream: {reconnect: {strategy: fixed, base: 1m, minimum: 1m}}") == [])
    #expect(errors("upstream: {reconnect: {strategy: random, base: 1m}}") == [])
    #expect(errors("upstream: {reconnect: {strategy: doubling, minimum: 1m}}") == [])
  }

  @Test(arguments: ["resolve", "connect", "proxy", "tls", "upgrade"])
  func aTimeoutThatCannotPassBeforeTheWholeIsAWarning(phase: String) throws {
    let outcome = try load("upstream: {timeouts: {\(phase): 20s}}")
    #expect(
      outcome.warnings.map(\.message) == [
        "'upstream.timeouts.\(phase)' (20s) is above 'upstream.timeouts.opening' (15s, the default): the connection attempt times out first"
      ])
    #expect(try load("upstream: {timeouts: {opening: 1s}}").warnings == [])
  }

  /// The limit of all sessions together also limits each session.
  @Test func warnsOfASessionThatMayKeepMoreThanAllTogether() throws {
    let outcome = try load(
      """
      delivery: {bytes: 2MiB, total_bytes: 1MiB}
      sessions: {m: {upstream: {url: "ws://a"}, delivery: {bytes: 1MiB}}}
      profiles: {p: {upstream: {url: "ws://a"}, delivery: {bytes: 3MiB}}}
      """)
    #expect(
      outcome.warnings.map(\.message).filter { $0.contains("total_bytes") } == [
        "'delivery.bytes' (2MiB) is above 'delivery.total_bytes' (1MiB): that is the limit for all sessions together",
        "'profiles.p.delivery.bytes' (3MiB) is above 'delivery.total_bytes' (1MiB): that is the limit for all sessions together",
      ])
    #expect(try load("delivery: {bytes: 1GiB}").warnings.count == 1)
    #expect(try load("delivery: {total_bytes: 1MiB}").warnings == [])
  }

  /// `SettingOrder` names settings by path and by key path. Both must denote the same setting.
  @Test func everyOrderNamesSettingsThatExist() {
    let ofProcess = Set(Setting.all.map(\.path))
    for section in SettingSection.all + SettingSection.named("x") + SettingSection.profile("x") {
      let paths = Set(section.settings.map(\.path))
      for order in section.orders {
        #expect(paths.contains(order.lower))
        #expect(paths.contains(order.upper) || ofProcess.contains(order.upper))
      }
    }
  }
}
