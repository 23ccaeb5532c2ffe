import API
import ByteStreams

/// Who may use the gateway.
extension SettingSection {
  static func access(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let authentication = gateway.section("authentication", \.authentication)
    let jwt = authentication.section("jwt", \.jwt)
    return SettingSection(
      settings: [
        gateway(
          "access", \.access, .choice,
          "without authentication: auto accepts only loopback and Unix listeners, none lets everyone in", flag: "access"
        ),
        authentication("tokens", \.tokens, .optionalPath, "file of static tokens (drawbridge token)"),
        jwt("keys", \.keys, .optionalPath, "file of the keys that sign JSON Web Tokens (a JWK Set)"),
        jwt("audience", \.audiences, .texts, "accepted values of the claim aud"),
        jwt("issuer", \.issuers, .texts, "accepted values of the claim iss; empty: any value"),
        jwt("leeway", \.leeway, .duration(.zero...(.minutes(5))), "tolerated difference between the clocks"),
        authentication(
          "certificates", \.certificates, .certificateRules, "rights of client certificates, by their names"),
      ], rules: [gateway.rule(contradictions)])
  }

  private static func contradictions(_ gateway: GatewaySettings) -> [SettingProblem] {
    var problems: [SettingProblem] = []
    let authentication = gateway.authentication
    if gateway.access == .none, authentication.isConfigured {
      problems.append(
        SettingProblem(
          "access", .value, "authentication is configured as well: leave out one of them",
          comparedWith: ["authentication"]))
    }
    if authentication.jwt.keys != nil, authentication.jwt.audiences.isEmpty {
      problems.append(
        SettingProblem(
          "authentication.jwt.audience", .missing,
          "tokens for other services must not be accepted: set it to the values of aud that mean this gateway"))
    }
    return problems
  }
}
