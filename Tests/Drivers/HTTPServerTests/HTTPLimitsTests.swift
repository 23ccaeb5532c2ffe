import Configuration
import HTTPCodec
import Testing

@testable import HTTPServer

@Suite struct HTTPLimitsTests {
  @Test func theDefaultLimitsOfTheFileAreThoseOfTheCodec() {
    #expect(GatewaySettings().http.limits == HTTPLimits())
  }
}
