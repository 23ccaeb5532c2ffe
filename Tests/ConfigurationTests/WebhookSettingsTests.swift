import ByteStreams
import Consumers
import HTTPCodec
import Profiles
import Sessions
import Testing
import Webhooks

@testable import Configuration

/// `webhooks`.
@Suite struct WebhookSettingsTests {
  private static let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

  private func webhook(_ more: String = "", name: String = "a", url: String = "https://example.org/x") -> String {
    "webhooks: [{name: \(name), url: '\(url)', secrets: ['\(Self.secret)']\(more)}]"
  }

  @Test func aWebhookNeedsANameAURLAndASecret() throws {
    let loaded = try #require(try load(webhook()).settings.session.webhooks.first)
    #expect(loaded.name == "a" && loaded.url.host == "example.org" && loaded.secrets.count == 1)
    #expect(loaded.concurrency == 1 && loaded.timeout == .seconds(20) && loaded.giveUpAfter == .hours(24))
    #expect(loaded.retries.count == 6)
    for text in ["{name: a}", "{url: 'https://a/', secrets: []}", "{name: a, url: 'https://example.org/'}"] {
      let found = errors("webhooks: [\(text)]")
      #expect(found.count == 1 && found[0].contains("needs"), "\(found)")
    }
  }

  @Test func readsEveryMember() throws {
    let text = webhook(
      ", topics: [a, 'b.*'], concurrency: 4, order_by: /id, timeout: 5s, retries: [1s, 2m], give_up_after: 1h,"
        + " addresses: {allow: [10.0.0.0/8]}, ca_file: /ca.pem")
    let loaded = try #require(try load(text).settings.session.webhooks.first)
    #expect(loaded.topics == ["a", "b.*"] && loaded.concurrency == 4 && loaded.order?.text == "/id")
    #expect(loaded.timeout == .seconds(5) && loaded.retries == [.seconds(1), .minutes(2)])
    #expect(loaded.giveUpAfter == .hours(1) && loaded.caFile == "/ca.pem")
    #expect(loaded.rules.allowed.map(\.description) == ["10.0.0.0/8"])
    #expect(loaded.consumer.topics == ["a", "b.*"])
  }

  @Test func secretsAndURLsCanBeReferences() throws {
    let text = "webhooks: [{name: a, url: '${env:HOOK}', secrets: ['${file:old}', '${file:new}']}]"
    let loaded = try load(
      text, environment: ["HOOK": "http://u:p@example.org/"], files: ["old": Self.secret + "\n", "new": Self.secret])
    let webhook = try #require(loaded.settings.session.webhooks.first)
    #expect(webhook.url.credentials == "u:p" && webhook.secrets.count == 2)
  }

  @Test func aNamedSessionHasItsOwnWebhooks() throws {
    let loaded = try load("sessions: {m: {upstream: {url: 'ws://a/'}, \(webhook())}}")
    #expect(loaded.settings.session.webhooks.isEmpty)
    #expect(loaded.settings.sessions.first?.configuration.webhooks.map(\.name) == ["a"])
    #expect(errors("profiles: {p: {upstream: {url: 'ws://a/'}, \(webhook())}}").first?.contains("webhooks") == true)
  }

  @Test(arguments: [
    (", concurrency: 65", "'65' is not valid for 'webhooks[0].concurrency': use a number from 1 to 64"),
    (", timeout: 1h", "'1h' is not valid for 'webhooks[0].timeout': use a duration from 100ms to 5m"),
    (", retries: 5s", "'webhooks[0].retries' must be a list of at most 20 plain values"),
    (", topics: ['']", "'' is not valid for 'webhooks[0].topics': use 1 to 256 bytes"),
    (", concurrency: 2, order_by: all", "for the order of all pushes, use concurrency 1"),
    (", order_by: topic", "'webhooks[0].order_by' has no effect with concurrency 1"),
    (", addresses: {allow: [x]}", "'x' is not valid for 'webhooks[0].addresses.allow': use a block"),
    (", secret: x", "unknown key 'webhooks[0].secret' (did you mean 'secrets'?)"),
  ])
  func reportsTheFault(more: String, message: String) {
    let found = errors(webhook(more))
    #expect(found.count == 1 && found[0].contains(message), "\(found)")
  }

  @Test(arguments: [
    ("ws://example.org/", "it does not begin with http:// or https://"),
    ("http://127.0.0.1/", "refused unless 'addresses.allow' of the webhook has it"),
    ("http://0x7f.1/", "refused unless 'addresses.allow' of the webhook has it"),
    ("http://localhost/", "the host 'localhost' is this machine"),
    ("http://169.254.169.254/", "metadata"),
  ])
  func refusesURLs(url: String, message: String) {
    let found = errors(webhook(url: url))
    #expect(found.count == 1 && found[0].contains(message), "\(found)")
  }

  @Test func twoWebhooksHaveTwoNames() {
    let one = "{name: a, url: 'https://example.org/', secrets: ['\(Self.secret)']}"
    #expect(errors("webhooks: [\(one), \(one)]").first?.contains("'a' is the name of two webhooks") == true)
    #expect(errors(webhook(name: "'..'")).first?.contains("not only dots") == true)
  }

  @Test func showsNoSecrets() throws {
    let loaded = try load(webhook(url: "https://user:word@example.org/x?token"))
    let setting = try #require(Setting.all.first { $0.path == "webhooks" })
    let text = setting.format(loaded.settings)
    #expect(text.contains("\"https://example.org/***\"") && text.contains("[\"***\"]"))
    for secret in ["word", "token", "MfKQ"] { #expect(!text.contains(secret)) }
    let wrong = errors("webhooks: [{name: a, url: 'http://u:word@example.org/token#x', secrets: [MfKQ]}]")
    for secret in ["word", "token", "MfKQ"] { #expect(!wrong.joined().contains(secret)) }
  }
}
