import TLSEngine
import TLSSupport
import Testing

@Suite struct SettingsTests {
  let authority = TestAuthority()

  /// Returns the error of the settings that `change` makes.
  func complaint(_ change: (inout TLSClientSettings) -> Void) -> TLSSettingsError? {
    do {
      _ = try TLSContext(trusting(authority, change))
      return nil
    } catch {
      return error
    }
  }

  @Test func anErrorNamesTheMissingFile() throws {
    #expect(
      complaint { $0.trust.caFile = "/no/such/ca.pem" }
        == .unreadable(.authorities, file: "/no/such/ca.pem", reason: "it was not read"))
  }

  @Test func anErrorNamesAFileWithoutACertificate() throws {
    let files = try TestFiles()
    for text in ["", "hello\n", authority.identity.keyPEM] {
      let path = try files.write("ca.pem", text)
      let error = complaint { $0.trust.caFile = path }
      #expect(error == .noCertificate(.authorities, file: path))
      #expect(error?.description.hasPrefix("CA file \(path) has no certificate") == true)
    }
  }

  @Test func anErrorHasTheNumberOfTheMalformedCertificate() throws {
    let files = try TestFiles()
    let broken = "-----BEGIN CERTIFICATE-----\nTm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n"
    let path = try files.write("ca.pem", "# the first is well\n" + authority.certificatePEM + broken)
    guard case .malformedCertificate(.authorities, path, index: 2, _) = complaint({ $0.trust.caFile = path }) else {
      Issue.record("a broken certificate was accepted")
      return
    }
  }

  @Test func readsABundleFromAFileAndFromText() throws {
    let files = try TestFiles()
    let other = TestAuthority(name: "Other CA")
    let path = try files.write("ca.pem", other.certificatePEM + authority.certificatePEM + other.certificatePEM)
    for trust in [
      TLSClientSettings.Trust(systemStore: false, caFile: path),
      .init(systemStore: false, caPEM: other.certificatePEM + authority.certificatePEM),
      .init(systemStore: true, caFile: path, caPEM: authority.certificatePEM),
    ] {
      var talk = try Conversation(authority) { $0.trust = trust }
      try talk.handshake()
      #expect(talk.client.isHandshakeComplete)
    }
  }

  @Test func needsATrustedAuthority() {
    #expect(complaint { $0.trust = .init(systemStore: false) } == .noTrustedCertificate)
    let unverified = complaint {
      $0.trust = .init(systemStore: false)
      $0.verification = .offForTestsOnly
    }
    #expect(unverified == nil)
  }

  @Test func refusesAnEmptyRangeOfVersions() {
    let error = complaint {
      $0.minimumVersion = .v1_3
      $0.maximumVersion = .v1_2
    }
    #expect(error == .invertedVersionRange(minimum: .v1_3, maximum: .v1_2))
    #expect(TLSVersion.allCases.map(\.number) == ["1.2", "1.3"])
  }

  @Test func comparesTheKeyWithTheCertificate() throws {
    let files = try TestFiles()
    let client = TLSClientSettings.ClientCertificate(
      certificateFile: try files.write("a.pem", authority.issue(nil).certificatePEM),
      keyFile: try files.write("b.pem", authority.issue(nil).keyPEM))
    let error = complaint { $0.clientCertificate = client }
    #expect(error == .keyDoesNotMatchCertificate(keyFile: client.keyFile, certificateFile: client.certificateFile))
    #expect(
      error?.description == "the key in \(client.keyFile) does not match the certificate in \(client.certificateFile)")
  }

  @Test func neverPromptsForAPassphrase() throws {
    let files = try TestFiles()
    let identity = authority.issue(nil)
    var client = try files.client(identity)
    client.keyFile = try files.write("encrypted.pem", identity.encryptedKeyPEM)
    #expect(complaint { $0.clientCertificate = client } == .encryptedPrivateKey(file: client.keyFile))
    client.keyFile = client.certificateFile
    #expect(complaint { $0.clientCertificate = client } == .noPrivateKey(file: client.keyFile))
  }

  @Test func refusesInvalidHostNames() throws {
    let context = try TLSContext(trusting(authority))
    for host in ["", ".", "a b", "a\0b", "müller.test", String(repeating: "a", count: 254)] {
      #expect(throws: TLSSettingsError.badServerName(host)) { try TLSConnection(to: host, context: context) }
      #expect(complaint { $0.serverName = host } == .badServerName(host))
    }
    #expect(complaint { $0.applicationProtocols = [""] } == .badApplicationProtocol(""))
  }

  @Test func detectsAChangedFile() throws {
    let files = try TestFiles()
    let client = try files.client(authority.issue(nil))
    let first = try TLSContext(trusting(authority) { $0.clientCertificate = client })
    #expect(try first.reloadedIfChanged() == nil)
    _ = try files.client(authority.issue(nil))
    let second = try #require(try first.reloadedIfChanged())
    #expect(try second.reloadedIfChanged() == nil)
    // An incomplete replacement must not disable a working context: the caller keeps the old context and tries again.
    try files.write("client-key.pem", authority.issue(nil).keyPEM)
    #expect(throws: TLSSettingsError.self) { try second.reloadedIfChanged() }
  }
}
