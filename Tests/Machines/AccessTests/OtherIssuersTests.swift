import Testing

@testable import Access

/// Tokens from other libraries. The keys are from OpenSSL. authlib 1.9.9 wrote the key set, and PyJWT 2.15.1 and
/// authlib wrote a token with each key.
@Suite struct OtherIssuersTests {
  private static let keys = #"""
    {"keys": [{"n": "t23XOC8r1avoljtzYpYbGNqSbTJm9deXOZ1d4PfEvYcIsl2Q_poL1zlN0JWjdIjDWitbqQlaUnvRcFD0aue\#
    tgJo5-aJtOkJkvSuh8VKiCrav7-O3RiCrDcP7pj_mwDX0XptdfbZV0p9tQGO8o3cqi-7IwhrowP73gZLQerVOFsUOu6xWxnbp5cE\#
    xe-WgsYjpcUvhO-kclpbhDGWnpKHj-uLefFEi6hrllpewO66RNofEC15JEb60_pAhvUg7X8U4EMTkq3Lu72Bt2U2NZmLfL8rQa3K\#
    qs1Dma6WTQinUwz-XwHUEsGbYtBAj8hupec8dyf6XS-bpu-p36DSmJvix8w", "e": "AQAB", "kty": "RSA", "kid": "rs2\#
    56"}, {"crv": "P-256", "x": "IIv7jx-shJKr5jW1huN7Wz0cDfvvic_H8ZG7pC_eUx8", "y": "qn2xGxxINiwS-rZBuGX\#
    0UlwJ0zw07pcldiF60CyBnCM", "kty": "EC", "kid": "es256"}, {"crv": "Ed25519", "x": "mL-dQ954tvZsaEQ05F\#
    8dpaNxqMfepuDRx9djA_bdB_Y", "kty": "OKP", "kid": "eddsa"}, {"kty": "oct", "k": "MDEyMzQ1Njc4OWFiY2Rl\#
    ZjAxMjM0NTY3ODlhYmNkZWY", "use": "sig", "alg": "HS256", "kid": "hs256"}]}
    """#

  private static let tokens = [
    #"""
    eyJhbGciOiJSUzI1NiIsImtpZCI6InJzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.hqjs9bxeWelfNscsoWEeJNmQEOP8O84liI1UzoH1WhLVXlwBe9adpCGNLBqcG5iUK\#
    Omw6i7J-wCY_M1kj5uB8kSaOWwuaYGdmsnEipEnqsTc4tVXQoVOAMetHjYwuv7QPweItqPBP9CQ0kpSiSfSk4VqYZdtDXmPAjyR8\#
    lO2mm0eb-gqoHFt2KSa3jhPN133LPilFFh89nEIK9U0Z91DoCJO0AS1j8Nqexrd4z3tXFT1rc5TjDZ55ikNapqea1bIeM79OHdKq\#
    5X_YhEQEJ57p2fVx04QaAKCI0_IfVd25-TG3_lUwNMEn8rg_U3MKAbuAXqUvoUIYNkLNVrfcIYvUw
    """#,
    #"""
    eyJhbGciOiJSUzI1NiIsImtpZCI6InJzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.hqjs9bxeWelfNscsoWEeJNmQEOP8O84liI1UzoH1WhLVXlwBe9adpCGNLBqcG5iUK\#
    Omw6i7J-wCY_M1kj5uB8kSaOWwuaYGdmsnEipEnqsTc4tVXQoVOAMetHjYwuv7QPweItqPBP9CQ0kpSiSfSk4VqYZdtDXmPAjyR8\#
    lO2mm0eb-gqoHFt2KSa3jhPN133LPilFFh89nEIK9U0Z91DoCJO0AS1j8Nqexrd4z3tXFT1rc5TjDZ55ikNapqea1bIeM79OHdKq\#
    5X_YhEQEJ57p2fVx04QaAKCI0_IfVd25-TG3_lUwNMEn8rg_U3MKAbuAXqUvoUIYNkLNVrfcIYvUw
    """#,
    #"""
    eyJhbGciOiJFUzI1NiIsImtpZCI6ImVzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.yM56mAzkv_AAHht8sVC9x5VdSYwFwJOdNUceJFVO2c0YAyLA2E9N3i4dZLHMeCt6K\#
    OZx1WSPjPcy-_NOsIlmhQ
    """#,
    #"""
    eyJhbGciOiJFUzI1NiIsImtpZCI6ImVzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.tb6VPBtShHSVnC3qxPTHw1Nvr5TiZ0zzF3zB0naNvVmYstDnlfzrfeYsfBy_DZs8v\#
    WqOlv5Ly_SuXSuUCDL8FQ
    """#,
    #"""
    eyJhbGciOiJFZERTQSIsImtpZCI6ImVkZHNhIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.k_RdA1TJJp7BHfKJF7-KmFlsCp41Pkr1K78XlOAsQr_kiWSIADgc0pB_4N9lEcXxH\#
    08c73canONcCBG4wvd7CQ
    """#,
    #"""
    eyJhbGciOiJFZERTQSIsImtpZCI6ImVkZHNhIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.k_RdA1TJJp7BHfKJF7-KmFlsCp41Pkr1K78XlOAsQr_kiWSIADgc0pB_4N9lEcXxH\#
    08c73canONcCBG4wvd7CQ
    """#,
    #"""
    eyJhbGciOiJIUzI1NiIsImtpZCI6ImhzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.ROq83FcXnN1H3psqUq1oQLh9sZzunTR3gXxJVlnRTYQ
    """#,
    #"""
    eyJhbGciOiJIUzI1NiIsImtpZCI6ImhzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJz\#
    dWIiOiJhbGljZSIsImF1ZCI6WyJkcmF3YnJpZGdlIiwib3RoZXIiXSwiZXhwIjoxODAwMDAwMzAwLCJpYXQiOjE3OTk5OTk5OTks\#
    Im5iZiI6MTc5OTk5OTk5OS41LCJzY29wZSI6Im9wZW5pZCBzZW5kIiwiZHJhd2JyaWRnZSI6eyJzZXNzaW9ucyI6WyJwcmljZXMi\#
    XSwidG9waWNzIjpbIm9yZGVycy4qIl19fQ.ROq83FcXnN1H3psqUq1oQLh9sZzunTR3gXxJVlnRTYQ
    """#,
  ]

  @Test(arguments: tokens.indices)
  func tokensOfOtherLibrariesAreAccepted(index: Int) throws {
    let keys = try KeySet(Array(Self.keys.utf8))
    #expect(keys.warnings == [])
    let policy = JWTPolicy(audiences: ["drawbridge"], issuers: ["https://login.example"])
    let token = Array(Self.tokens[index].utf8)
    let grant = try JSONWebToken.verify(token.span, with: keys, policy, at: now * 1_000)
    #expect(grant.principal == "https://login.example alice" && grant.scopes == .send)
    #expect(grant.sessions.description == "prices" && grant.topics.description == "orders.*")
    #expect(refusal(of: Self.tokens[index], keys, policy: JWTPolicy(audiences: ["third"])) == .otherAudience)
    #expect(refusal(of: Self.tokens[index], keys, at: now + 360) == .expired)
  }
}
