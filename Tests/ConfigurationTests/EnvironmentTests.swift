import Testing

@testable import Configuration

/// Variables of the environment that begin with `DRAWBRIDGE_`.
@Suite struct EnvironmentTests {
  private func warnings(_ environment: [String: String]) throws -> [String] {
    try load(environment: environment).warnings.map(\.description)
  }

  @Test(arguments: [
    ("DRAWBRIDGE_UPSTREAM_ULR", "DRAWBRIDGE_UPSTREAM_URL"),
    ("DRAWBRIDGE_UPSTREAM_TTL", "DRAWBRIDGE_UPSTREAM_QUEUE_TTL"),
    ("DRAWBRIDGE_QUEUE_TTL", "DRAWBRIDGE_UPSTREAM_QUEUE_TTL"),
    ("DRAWBRIDGE_HEARTBEAT_INTERVAL", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL"),
    ("DRAWBRIDGE_LOG_LEVL", "DRAWBRIDGE_LOG_LEVEL"),
    ("DRAWBRIDGE_CONFIGG", "DRAWBRIDGE_CONFIG"),
  ])
  func anUnknownVariableIsAWarningWithTheNearestName(name: String, nearest: String) throws {
    #expect(
      try warnings([name: "x"]) == [
        "environment variable \(name): no such setting (did you mean '\(nearest)'?); it is ignored"
      ])
  }

  /// The variables that Kubernetes sets for Services called `drawbridge` and `drawbridge-upstream`.
  @Test func variablesOfServiceLinksAreIgnored() throws {
    var environment: [String: String] = [:]
    for service in ["DRAWBRIDGE", "DRAWBRIDGE_UPSTREAM"] {
      environment["\(service)_SERVICE_HOST"] = "10.0.0.1"
      environment["\(service)_SERVICE_PORT"] = "8080"
      environment["\(service)_SERVICE_PORT_HTTP_ALT"] = "8080"
      environment["\(service)_PORT"] = "tcp://10.0.0.1:8080"
      for port in ["8080_TCP", "53_UDP", "5060_SCTP"] {
        environment["\(service)_PORT_\(port)"] = "tcp://10.0.0.1:8080"
        for part in ["PROTO", "PORT", "ADDR"] { environment["\(service)_PORT_\(port)_\(part)"] = "x" }
      }
    }
    let outcome = try load(environment: environment)
    #expect(outcome.warnings == [] && outcome.settings == GatewaySettings())
  }

  @Test(arguments: [
    ("DRAWBRIDGE_PORT", "8080"), ("DRAWBRIDGE_UPSTREAM_PORT", "443"), ("DRAWBRIDGE_PORT_80_QUIC", "x"),
    ("DRAWBRIDGE_SERVICE", "x"), ("DRAWBRIDGE_PORT_80", "x"), ("DRAWBRIDGE_PORT_80_TCP_NAME", "x"),
  ])
  func aVariableThatResemblesAServiceLinkIsAWarning(name: String, value: String) throws {
    #expect(try warnings([name: value]).count == 1)
  }

  @Test func noSettingIsMistakenForAServiceLink() {
    for setting in Setting.all { #expect(!ServiceLink.isLink(setting.environmentName, value: "tcp://x")) }
  }
}
