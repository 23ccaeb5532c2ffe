import ByteStreams
import TLSEngine
import TLSSupport
import Testing

@Suite struct VerificationTests {
  let authority = TestAuthority()

  /// Returns the failure of a handshake with `identity`, or nil.
  func outcome(
    _ identity: TestIdentity, host: String = "upstream.test", _ options: TestServer.Options = .init(),
    _ change: (inout TLSClientSettings) -> Void = { _ in }
  ) throws -> TLSError? {
    let client = try TLSConnection(to: host, context: TLSContext(trusting(authority, change)))
    var talk = Conversation(client, TestServer(identity, options))
    do {
      try talk.handshake()
      return nil
    } catch {
      return error
    }
  }

  @Test func acceptsACertificateOfTheAuthority() throws {
    #expect(try outcome(authority.issue("DNS:upstream.test")) == nil)
    #expect(try outcome(authority.issue("DNS:*.example.test"), host: "a.example.test") == nil)
  }

  @Test func refusesAnExpiredCertificate() throws {
    let error = try outcome(authority.issue("DNS:upstream.test", from: -7200, to: -3600))
    guard case .certificateExpired(let subject, _) = error else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(subject == "CN = Test leaf")
    #expect(
      TLSError.certificateExpired(subject: "CN = a", at: 1_700_000_000).description.hasSuffix("2023-11-14T22:13:20Z"))
  }

  @Test func refusesACertificateThatIsNotValidYet() throws {
    let error = try outcome(authority.issue("DNS:upstream.test", from: 3600))
    guard case .certificateNotYetValid(_, let moment) = error else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(moment > 1_700_000_000)
  }

  @Test func refusesAnotherHostAndListsTheCoveredNames() throws {
    let identity = authority.issue("DNS:a.test,DNS:b.test,IP:192.0.2.1,IP:2001:db8::1")
    let error = try outcome(identity)
    let covers = ["a.test", "b.test", "192.0.2.1", "2001:db8:0:0:0:0:0:1"]
    #expect(error == .wrongHost(expected: "upstream.test", covers: covers))
    #expect(error?.description.contains("it covers a.test, b.test") == true)
  }

  @Test func aWildcardMatchesOneWholeLabel() throws {
    let isWrong = { (names: String, host: String) in
      if case .wrongHost = try self.outcome(self.authority.issue(names), host: host) { true } else { false }
    }
    #expect(try isWrong("DNS:*.example.test", "a.b.example.test"))
    #expect(try isWrong("DNS:up*.example.test", "upstream.example.test"))
    #expect(try isWrong("DNS:*.example.test", "example.test"))
    // A wildcard for a whole top-level domain is not accepted.
    #expect(try isWrong("DNS:*.test", "upstream.test"))
  }

  @Test func theCommonNameIsNotAHostName() throws {
    #expect(try outcome(authority.issue(nil), host: "Testleaf") == .wrongHost(expected: "Testleaf", covers: []))
  }

  @Test func anAddressIsComparedWithAddressesOnly() throws {
    #expect(try outcome(authority.issue("IP:192.0.2.1"), host: "192.0.2.1") == nil)
    let mistaken = try outcome(authority.issue("DNS:192.0.2.1"), host: "192.0.2.1")
    #expect(mistaken == .wrongHost(expected: "192.0.2.1", covers: ["192.0.2.1"]))
  }

  @Test func namesInACertificateCannotForgeALogLine() throws {
    let error = try outcome(authority.issue("DNS:a\u{1b}[2J.test"))
    #expect(error == .wrongHost(expected: "upstream.test", covers: ["a?[2J.test"]))
  }

  @Test func refusesASelfSignedCertificateUnlessItIsTrustedItself() throws {
    let identity = TestAuthority.selfSigned("DNS:upstream.test")
    #expect(try outcome(identity) == .selfSignedCertificate(subject: "CN = Lonely leaf"))
    #expect(try outcome(identity) { $0.trust.caPEM = identity.certificatePEM } == nil)
  }

  @Test func refusesAnUnknownIssuer() throws {
    let stranger = TestAuthority(name: "Stranger")
    #expect(try outcome(stranger.issue("DNS:upstream.test")) == .unknownIssuer(issuer: "CN = Stranger"))
  }

  @Test func needsTheIntermediateCertificates() throws {
    let middle = TestAuthority(name: "Middle", under: authority)
    let identity = middle.issue("DNS:upstream.test")
    #expect(try outcome(identity) == .unknownIssuer(issuer: "CN = Middle"))
    #expect(try outcome(identity, .init(intermediate: middle)) == nil)
    // A client that trusts the intermediate certificate explicitly needs no root.
    #expect(try outcome(identity) { $0.trust.caPEM = middle.certificatePEM } == nil)
  }

  @Test func refusesACertificateMadeForClients() throws {
    let error = try outcome(authority.issue("DNS:upstream.test", usage: "clientAuth"))
    guard case .certificateRejected(_, let reason) = error else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(reason.contains("purpose"), "\(reason)")
  }

  @Test func acceptsAnythingOnlyWhenVerificationIsOff() throws {
    let identity = TestAuthority.selfSigned("DNS:somewhere.else")
    #expect(try outcome(identity) { $0.verification = .offForTestsOnly } == nil)
  }

  // MARK: Pins

  @Test func aPinMustMatchTheVerifiedChain() throws {
    let identity = authority.issue("DNS:upstream.test")
    let pin = identity.pin
    #expect(try outcome(identity) { $0.pins = [pin] } == nil)
    let other = authority.issue("DNS:upstream.test")
    let error = try outcome(other) { $0.pins = [pin] }
    guard case .pinMismatch(let presented) = error else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(presented == other.pin)
    #expect(try outcome(other) { $0.pins = [pin, presented] } == nil)
  }

  @Test func theAuthoritysKeyCanBePinned() throws {
    let pin = authority.identity.pin
    #expect(try outcome(authority.issue("DNS:upstream.test")) { $0.pins = [pin] } == nil)
    // Without verification, certificates sent with the leaf prove nothing.
    let error = try outcome(authority.issue("DNS:upstream.test"), .init(intermediate: authority)) {
      $0.pins = [pin]
      $0.verification = .offForTestsOnly
    }
    guard case .pinMismatch = error else {
      Issue.record("\(String(describing: error))")
      return
    }
  }

  @Test func aPinDoesNotMakeABadCertificateValid() throws {
    let identity = TestAuthority.selfSigned("DNS:upstream.test")
    #expect(try outcome(identity) { $0.pins = [identity.pin] } == .selfSignedCertificate(subject: "CN = Lonely leaf"))
  }

  @Test func readsPinsInTheCommonNotations() {
    let digits = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    for text in [digits, "sha256/" + digits, "sha256//" + digits] {
      #expect(PublicKeyPin(text)?.base64 == digits)
    }
    #expect(PublicKeyPin(digits)?.description == "sha256/" + digits)
    for text in [
      "", "sha256/", String(digits.dropLast()), digits + "=", String(digits.dropLast(2)) + "V=",
      "?" + digits.dropFirst(),
    ] {
      #expect(PublicKeyPin(text) == nil, "\(text)")
    }
  }
}
