import ByteStreams
import Inbox
import Logging
import Outbox
import Sessions
import Testing
import Upstream
import UpstreamSession
import WebSocketCodec

@testable import Configuration

/// The settings that a reload changes, and the settings that it reports as requiring a restart.
@Suite struct ReloadTests {
  private func reload(_ new: String, after old: String) throws -> (
    settings: GatewaySettings, requiringRestart: [String]
  ) {
    try load(new).settings.effective(after: load(old).settings)
  }

  @Test func theUpstreamOfEachSessionChangesButNotItsQueue() throws {
    let old =
      "upstream: {url: 'ws://a/'}\nsessions: {m: {upstream: {url: 'ws://b/'}}, n: {upstream: {url: 'ws://c/'}}}\n"
    let (settings, stale) = try reload(
      """
      log: {level: debug}
      reload: signal
      shutdown: {pause: 3s, drain: 4s}
      loops: 3
      upstream: {url: 'ws://a2/', queue: {messages: 5, high_water: 1MiB}, dials: {burst: 1}}
      sessions: {n: {upstream: {url: 'ws://c2/', queue: {ttl: 1s}}, delivery: {age: 1m}}, m: {upstream: {url: 'ws://b2/'}}}

      """, after: old)
    let sessions = settings.configuredSessions
    #expect(sessions.map(\.name) == ["default", "m", "n"])
    #expect(sessions.map { $0.configuration.upstream.url?.host } == ["a2", "b2", "c2"])
    #expect(sessions.map { $0.configuration.upstream.outbox.maximumMessages } == [1024, 1024, 1024])
    #expect(settings.loops == 0 && settings.dials == AttemptLimits() && settings.log.level == .debug)
    #expect(
      Set(stale) == [
        "loops", "upstream.queue.messages", "upstream.queue.high_water", "upstream.dials.burst",
        "sessions.n.upstream.queue.ttl",
      ])
    #expect(sessions[2].configuration.retention.age == .minutes(1))
    #expect(settings.reload == .signal && settings.shutdown.pause == .seconds(3))
  }

  @Test func sessionsAreNeitherAddedNorRemoved() throws {
    let (settings, stale) = try reload(
      "sessions: {n: {upstream: {url: 'ws://n/'}}}",
      after: "upstream: {url: 'ws://a/'}\nsessions: {m: {upstream: {url: 'ws://b/'}}}\n")
    #expect(settings.configuredSessions.map(\.name) == ["default", "m"])
    #expect(stale == ["upstream.url", "sessions.n", "sessions.m"])
  }

  /// The queue keeps its old settings until a restart.
  @Test(arguments: ["", "{sessions: {m: "])
  func theNewUpstreamMustSuitTheExistingQueue(prefix: String) throws {
    let suffix = prefix.isEmpty ? "" : "}}"
    let settings = try reload(
      prefix + "{upstream: {url: 'ws://a/', heartbeat: {ping: false}}}" + suffix,
      after: prefix + "{upstream: {url: 'ws://a/', queue: {redeliver: unconfirmed}}}" + suffix
    ).settings
    #expect {
      try settings.check()
    } throws: { error in
      let problems = (error as? SettingProblems)?.problems ?? []
      return problems.map(\.key) == [(prefix.isEmpty ? "" : "sessions.m.") + "upstream.queue.redeliver"]
    }
  }

  @Test func onlyTopicsChangeWithoutANewConnection() throws {
    func upstream(_ text: String) throws -> UpstreamSettings {
      try load("upstream: {url: 'ws://a/'\(text)}").settings.session.upstream
    }
    let old = try upstream("")
    #expect(try !upstream(", topic: {pointer: /c}").needsConnection(after: old))
    #expect(try !old.needsConnection(after: upstream(", topic: {rules: [{match: {prefix: a}, topic: b}]}")))
    #expect(!old.needsConnection(after: old))
    for text in [", cursor: {pointer: /c}", ", headers: {A: b}", ", topic: {pointer: /c}, on_open: [{send: a}]"] {
      #expect(try upstream(text).needsConnection(after: old), "\(text)")
    }
  }

  @Test func equalSettingsChangeNothing() throws {
    let text = "upstream: {url: 'ws://a/', close_codes: {4000: stop}, headers: {A: b}}"
    let (settings, stale) = try reload(text, after: text)
    #expect(try stale == [] && settings == load(text).settings)
  }
}
