import ByteStreams
import COpenSSL
import TLSEngine
import TLSSupport
import Testing

@Suite struct HandshakeTests {
  @Test(arguments: [TLSVersion.v1_2, .v1_3], [Int.max, 1, 7])
  func theHandshakeSucceedsWholeAndByteByByte(version: TLSVersion, pieceSize: Int) throws {
    var talk = try Conversation(pieceSize: pieceSize) { $0.maximumVersion = version }
    try talk.handshake()
    #expect(talk.server.isComplete)
    #expect(talk.server.requestedName == "upstream.test")
    #expect(talk.server.version == (version == .v1_2 ? TLS1_2_VERSION : TLS1_3_VERSION))
    #expect(talk.server.applicationProtocol == "http/1.1")
  }

  @Test(arguments: [TLSVersion.v1_2, .v1_3])
  func theHandshakeSucceedsAtEverySplitOfTheServersMessages(version: TLSVersion) throws {
    let authority = TestAuthority()
    let context = try TLSContext(trusting(authority) { $0.maximumVersion = version })
    let identity = authority.issue("DNS:upstream.test")
    var split = 1
    while true {
      let client = try TLSConnection(to: "upstream.test", context: context)
      var talk = Conversation(client, TestServer(identity))
      #expect(try client.advanceHandshake() == .needsCiphertext)
      talk.server.receive(client.takeOutput())
      let flight = talk.server.takeOutput()
      guard split < flight.count else { break }
      try talk.deliver(Array(flight[..<split]))
      try talk.deliver(Array(flight[split...]))
      try talk.handshake()
      #expect(client.isHandshakeComplete, "split at \(split)")
      split += 1
    }
    #expect(split > 500)
  }

  @Test func continuesWithoutAnAgreedProtocol() throws {
    var talk = try Conversation(TestAuthority(), .init(selectsProtocol: false))
    try talk.handshake()
    #expect(talk.client.isHandshakeComplete)
    #expect(talk.server.applicationProtocol == nil)
  }

  @Test func sendsNoServerNameForAnAddress() throws {
    let authority = TestAuthority()
    for host in ["192.0.2.7", "[2001:db8::7]", "2001:db8::7", "[2001:db8::7%eth0]"] {
      let client = try TLSConnection(to: host, context: TLSContext(trusting(authority)))
      var talk = Conversation(client, TestServer(authority.issue("IP:192.0.2.7,IP:2001:db8::7")))
      try talk.handshake()
      #expect(talk.server.requestedName == nil, "\(host)")
    }
  }

  @Test func sendsTheNameWithoutItsFinalDot() throws {
    var talk = try Conversation(host: "upstream.test.")
    try talk.handshake()
    #expect(talk.server.requestedName == "upstream.test")
  }

  @Test func expectsAndSendsTheNameThatOverridesTheHost() throws {
    var talk = try Conversation(host: "10.0.0.1") { $0.serverName = "upstream.test" }
    try talk.handshake()
    #expect(talk.server.requestedName == "upstream.test")
  }

  @Test func refusesAVersionBelowTheMinimum() throws {
    var talk = try Conversation(TestAuthority(), .init(versions: TLS1_2_VERSION...TLS1_2_VERSION)) {
      $0.minimumVersion = .v1_3
    }
    #expect(throws: TLSError.versionUnsupported(minimum: .v1_3, maximum: .v1_3)) { try talk.handshake() }
    #expect(TLSError.versionUnsupported(minimum: .v1_3, maximum: .v1_3).description.contains("TLS 1.3"))
  }

  @Test func reportsThatThePeerSupportsNoAllowedVersion() throws {
    var talk = try Conversation(TestAuthority(), .init(versions: TLS1_3_VERSION...TLS1_3_VERSION)) {
      $0.maximumVersion = .v1_2
    }
    #expect(throws: TLSError.versionUnsupported(minimum: .v1_2, maximum: .v1_2)) { try talk.handshake() }
  }

  @Test func reportsThatThereIsNoCommonCipher() throws {
    // The cipher needs an RSA key, which the server does not have.
    let options = TestServer.Options(
      versions: TLS1_2_VERSION...TLS1_2_VERSION, tls12Cipher: "ECDHE-RSA-AES128-GCM-SHA256")
    var talk = try Conversation(TestAuthority(), options)
    #expect(throws: TLSError.alert(.handshakeFailure)) { try talk.handshake() }
    #expect(
      TLSError.alert(.handshakeFailure).description
        == "the peer ended the connection with the alert 'handshake failure (40)'")
  }

  @Test func aFailedHandshakeStaysFailed() throws {
    var talk = try Conversation(host: "other.test")
    let expected = TLSError.wrongHost(expected: "other.test", covers: ["upstream.test"])
    #expect(throws: expected) { try talk.handshake() }
    #expect(throws: expected) { try talk.client.advanceHandshake() }
    #expect(throws: expected) { try talk.client.write([1].span) }
    #expect(!talk.client.isHandshakeComplete)
    talk.client.sendCloseNotify()
    #expect(!talk.client.hasPendingCiphertext)
  }

  @Test func sendsAnAlertWithTheReason() throws {
    var talk = try Conversation(host: "other.test")
    _ = try? talk.handshake()
    #expect(talk.server.hasFailed)
    #expect(talk.server.failureText.contains("alert"), "\(talk.server.failureText)")
  }

  @Test func errorsOfOtherConnectionsOnTheThreadAreIgnored() throws {
    var talk = try Conversation()
    #expect(try talk.client.advanceHandshake() == .needsCiphertext)
    #expect(BIO_new_file("/there/is/no/such/file", "r") == nil)
    #expect(ERR_peek_error() != 0)
    #expect(try talk.client.advanceHandshake() == .needsCiphertext)
    try talk.handshake()
    #expect(BIO_new_file("/there/is/no/such/file", "r") == nil)
    try talk.sendToServer([1])
    talk.server.send([2])
    #expect(BIO_new_file("/there/is/no/such/file", "r") == nil)
    try talk.deliverFromServer()
    #expect(talk.received == [2])
  }
}
