import COpenSSL
import TLSEngine
import TLSSupport
import Testing

@Suite struct ClientCertificateTests {
  let authority = TestAuthority()

  func talk(_ version: TLSVersion, _ change: (inout TLSClientSettings) -> Void) throws -> Conversation {
    try Conversation(authority, .init(clientAuthority: authority)) {
      $0.minimumVersion = version
      $0.maximumVersion = version
      change(&$0)
    }
  }

  @Test(arguments: [TLSVersion.v1_2, .v1_3]) func sendsTheRequestedCertificate(version: TLSVersion) throws {
    let files = try TestFiles()
    let identity = authority.issue(nil, usage: "clientAuth")
    let client = try files.client(identity)
    var talk = try talk(version) { $0.clientCertificate = client }
    try talk.handshake()
    #expect(talk.server.isComplete)
    #expect(talk.server.hasClientCertificate)
    try talk.sendToServer([1])
    #expect(talk.server.received == [1])
  }

  @Test(arguments: [TLSVersion.v1_2, .v1_3]) func reportsThatACertificateIsRequired(version: TLSVersion) throws {
    var talk = try talk(version) { _ in }
    #expect(throws: TLSError.clientCertificateRequired) {
      // In TLS 1.3, the client's handshake is complete before the server has checked the certificate.
      try talk.handshake()
      try talk.deliverFromServer()
    }
  }

  @Test(arguments: [TLSVersion.v1_2, .v1_3]) func reportsTheAlertIfTheCertificateIsRefused(version: TLSVersion) throws {
    let files = try TestFiles()
    let stranger = TestAuthority(name: "Stranger").issue(nil, usage: "clientAuth")
    let client = try files.client(stranger)
    var talk = try talk(version) { $0.clientCertificate = client }
    #expect(throws: TLSError.alert(TLSAlert(code: 48))) {
      try talk.handshake()
      try talk.deliverFromServer()
    }
    #expect(TLSAlert(code: 48).description == "unknown CA (48)")
    #expect(TLSAlert(code: 200).description == "unknown (200)")
  }

  @Test func sendsTheWholeChainOfItsFile() throws {
    let files = try TestFiles()
    let middle = TestAuthority(name: "Middle", under: authority)
    let identity = middle.issue(nil, usage: "clientAuth")
    let pem = identity.certificatePEM + middle.certificatePEM
    let client = TLSClientSettings.ClientCertificate(
      certificateFile: try files.write("chain.pem", pem), keyFile: try files.write("key.pem", identity.keyPEM))
    var talk = try talk(.v1_3) { $0.clientCertificate = client }
    try talk.handshake()
    #expect(talk.server.isComplete)
  }

  @Test func oneFileMayContainCertificateAndKey() throws {
    let files = try TestFiles()
    let identity = authority.issue(nil, usage: "clientAuth")
    let path = try files.write("both.pem", identity.keyPEM + identity.certificatePEM)
    var talk = try talk(.v1_3) { $0.clientCertificate = .init(certificateFile: path, keyFile: path) }
    try talk.handshake()
    #expect(talk.server.hasClientCertificate)
  }
}
