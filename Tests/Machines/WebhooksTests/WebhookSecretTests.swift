import Testing

@testable import Webhooks

@Suite struct WebhookSecretTests {
  /// The example from the specification of Standard Webhooks.
  @Test func signsLikeTheSpecification() throws {
    let secret = try #require(WebhookSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    let body = Array("{\"test\": 2432232314}".utf8)
    let content = WebhookContent(id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: 1_614_265_330, body: body.span)
    let signature = secret.signature(of: content)
    #expect(signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
  }

  @Test(arguments: [
    "", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS*", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw=",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", "whsec_" + String(repeating: "A", count: 88),
  ])
  func refusesInvalidSecrets(text: String) { #expect(WebhookSecret(text) == nil) }

  @Test(arguments: [
    "whsec_" + String(repeating: "A", count: 32), "whsec_" + String(repeating: "A", count: 34) + "==",
    "whsec_" + String(repeating: "A", count: 35) + "=", "whsec_" + String(repeating: "A", count: 86) + "==",
  ])
  func acceptsSecretsOf24To64Bytes(text: String) { #expect(WebhookSecret(text) != nil) }
}
