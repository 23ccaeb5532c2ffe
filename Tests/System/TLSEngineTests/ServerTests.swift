import ByteStreams
import COpenSSL
import TLSEngine
import TLSSupport
import TestSupport
import Testing

/// The server side, with clients of OpenSSL.
@Suite struct ServerTests {
  static let versions = [TLSVersion.v1_2, .v1_3]
  let authority = TestAuthority()

  /// A server and a client. The test moves the bytes between them.
  struct Talk: ~Copyable {
    let server: TLSConnection
    let client: TestClient
    var received: [UInt8] = []
    var lastRead = TLSConnection.ReadResult.needsCiphertext

    /// Passes `bytes` to the server, which makes as much progress as it can.
    mutating func deliver(_ bytes: [UInt8]) throws(TLSError) {
      server.receive(ciphertext: bytes.span)
      if try server.advanceHandshake() == .complete { try readAll() }
    }

    mutating func readAll() throws(TLSError) {
      var plaintext = ByteQueue()
      defer { received += plaintext.copyBytes() }
      repeat {
        lastRead = try server.read(into: &plaintext, atMost: 64 << 10)
      } while lastRead != .needsCiphertext && lastRead != .closed
    }

    /// Runs until neither side has output. The client receives all output of the server, even after a failure.
    mutating func converse(pieceSize: Int = .max) throws(TLSError) {
      client.receive()
      defer { client.receive(server.takeOutput()) }
      while true {
        let flight = client.takeOutput()
        if flight.isEmpty { return }
        var position = 0
        while position < flight.count {
          let end = min(flight.count, position + min(pieceSize, flight.count))
          try deliver(Array(flight[position..<end]))
          position = end
        }
        client.receive(server.takeOutput())
      }
    }
  }

  private func context(
    _ identity: TestIdentity? = nil, _ change: (inout TLSServerSettings) -> Void = { _ in }
  ) throws -> TLSServerContext {
    let identity = identity ?? authority.issue("DNS:gateway.test")
    var settings = TLSServerSettings()
    (settings.certificateFile, settings.keyFile, settings.clientCAFile) = ("chain", "key", "authorities")
    change(&settings)
    let contents = [
      "chain": identity.certificatePEM, "key": identity.keyPEM, "authorities": authority.certificatePEM,
    ]
    return try TLSServerContext(settings, contents: contents.mapValues { Array($0.utf8) })
  }

  private func talk(
    _ context: TLSServerContext, _ version: TLSVersion? = nil, _ change: (inout TestClient.Options) -> Void = { _ in }
  ) throws -> Talk {
    var options = TestClient.Options()
    switch version {
    case .v1_2: options.versions = TLS1_2_VERSION...TLS1_2_VERSION
    case .v1_3: options.versions = TLS1_3_VERSION...TLS1_3_VERSION
    case nil: break
    }
    change(&options)
    return Talk(server: try TLSConnection(accepting: context), client: TestClient(options))
  }

  @Test(arguments: versions, [1, 7, 1000, .max]) func completesAConnectionWithAClient(
    version: TLSVersion, pieceSize: Int
  ) throws {
    var talk = try talk(context(), version) { $0.protocols = ["h2", "http/1.1"] }
    try talk.converse(pieceSize: pieceSize)
    #expect(talk.client.isComplete && talk.server.isHandshakeComplete)
    #expect(talk.client.applicationProtocol == "http/1.1")
    #expect(talk.client.version == (version == .v1_2 ? TLS1_2_VERSION : TLS1_3_VERSION))
    #expect(talk.server.clientCertificate == nil)
    let text = pattern(100_000)
    talk.client.send(text)
    try talk.converse(pieceSize: pieceSize)
    #expect(talk.received == text)
    try talk.server.write(text.span)
    talk.client.receive(talk.server.takeOutput())
    #expect(talk.client.received == text)
    talk.client.sendCloseNotify()
    try talk.converse(pieceSize: pieceSize)
    #expect(talk.lastRead == .closed)
    talk.server.sendCloseNotify()
    talk.client.receive(talk.server.takeOutput())
    #expect(talk.client.isClosed)
  }

  @Test func selectsHTTPAndRefusesOtherProtocols() throws {
    for (offered, selected) in [([], nil), (["http/1.0"], "http/1.0"), (["http/1.0", "http/1.1"], "http/1.1")] {
      var talk = try talk(context()) { $0.protocols = offered }
      try talk.converse()
      #expect(talk.client.isComplete && talk.client.applicationProtocol == selected)
    }
    var talk = try talk(context()) { $0.protocols = ["h2"] }
    #expect(throws: TLSError.self) { try talk.converse() }
    #expect(talk.client.failureText?.contains("no application protocol") == true)
  }

  @Test func refusesOldVersionsAndWeakCiphers() throws {
    var old = try talk(context(nil) { $0.minimumVersion = .v1_3 }, .v1_2)
    #expect(throws: TLSError.self) { try old.converse() }
    #expect(old.client.failureText?.contains("protocol version") == true)
    var weak = try talk(context(), .v1_2) { $0.tls12Cipher = "ECDHE-ECDSA-AES128-SHA" }
    #expect(throws: TLSError.self) { try weak.converse() }
    #expect(weak.client.failureText?.contains("handshake failure") == true)
  }

  @Test func recognizesPlainHTTP() throws {
    for request in ["GET / HTTP/1.1\r\n\r\n", "POST /v1/messages HTTP/1.1\r\n", "HEAD / HTTP/1.0\r\n\r\n"] {
      var talk = try talk(context())
      #expect(throws: TLSError.plainHTTP) { try talk.deliver(Array(request.utf8)) }
    }
    var other = try talk(context())
    #expect(throws: TLSError.notTLS) { try other.deliver(Array("SSH-2.0-OpenSSH_9.2\r\n".utf8)) }
  }

  // MARK: TLS sessions

  @Test(arguments: versions) func resumesASessionUntilItsContextIsReplaced(version: TLSVersion) throws {
    let identity = authority.issue("DNS:gateway.test")
    let (first, second) = (try context(identity), try context(identity))
    var before = try talk(first, version)
    try before.converse()
    #expect(!before.server.isResumed && before.client.canResume)
    let session = before.client.session
    for (context, isResumed) in [(first, true), (second, false)] {
      var again = try talk(context, version) { $0.session = session }
      try again.converse()
      #expect(again.client.isComplete)
      #expect(again.server.isResumed == isResumed && again.client.isResumed == isResumed)
    }
  }

  @Test(arguments: versions) func aSessionWithAClientCertificateIsNotResumed(version: TLSVersion) throws {
    let context = try context(nil) { $0.clientCertificates = .optional }
    for identity in [nil, authority.issue("DNS:me.test", usage: "clientAuth")] {
      var talk = try talk(context, version) { $0.identity = identity }
      try talk.converse()
      #expect(talk.client.isComplete && !talk.client.canResume)
    }
  }

  // MARK: Client certificates

  @Test(arguments: versions) func returnsTheNamesOfTheClientCertificate(version: TLSVersion) throws {
    let context = try context(nil) { $0.clientCertificates = .required }
    let names = "DNS:Me.Test,URI:spiffe://test/me,IP:10.0.0.1,DNS:other.test"
    var talk = try talk(context, version) { $0.identity = authority.issue(names, usage: "clientAuth") }
    try talk.converse()
    let certificate = try #require(talk.server.clientCertificate)
    #expect(certificate.dnsNames == ["me.test", "other.test"])
    #expect(certificate.uris == ["spiffe://test/me"])
    #expect(certificate.subject == "CN = Test leaf")
  }

  @Test(arguments: versions) func refusesClientsWithoutAValidCertificate(version: TLSVersion) throws {
    let stranger = TestAuthority(name: "Stranger").issue("DNS:me.test", usage: "clientAuth")
    let expired = authority.issue("DNS:me.test", from: -7200, to: -3600, usage: "clientAuth")
    let early = authority.issue("DNS:me.test", from: 3600, to: 7200, usage: "clientAuth")
    for mode in [TLSServerSettings.ClientCertificates.required, .optional] {
      let context = try context(nil) { $0.clientCertificates = mode }
      for (identity, alert) in [
        (stranger, "unknown ca"), (expired, "certificate expired"), (early, "bad certificate"),
        (authority.issue("DNS:me.test"), "certificate"),
      ] {
        var talk = try talk(context, version) { $0.identity = identity }
        #expect(throws: TLSError.self) { try talk.converse() }
        #expect(talk.client.failureText?.contains(alert) == true, "\(talk.client.failureText ?? "accepted")")
        #expect(talk.server.clientCertificate == nil && talk.received.isEmpty)
      }
      var none = try talk(context, version)
      if mode == .optional {
        try none.converse()
        #expect(none.server.isHandshakeComplete && none.server.clientCertificate == nil)
      } else {
        #expect(throws: TLSError.noClientCertificate) { try none.converse() }
      }
    }
  }

  // MARK: Hostile clients

  @Test(arguments: versions) func noFlippedByteOfTheHandshakeCrashesTheServer(version: TLSVersion) throws {
    let context = try context()
    var random = SeededGenerator(seed: 1)
    var (position, refused) = (0, 0)
    while true {
      var talk = try talk(context, version)
      talk.client.receive()
      var flight = talk.client.takeOutput()
      guard position < flight.count else { break }
      flight[position] ^= 1 << UInt8.random(in: 0...7, using: &random)
      do {
        try talk.deliver(flight)
        talk.client.receive(talk.server.takeOutput())
        try talk.converse()
        talk.server.receiveEndOfCiphertext()
        _ = try talk.server.advanceHandshake()
      } catch { refused += 1 }
      #expect(talk.received.isEmpty)
      position += 1
    }
    // A flipped bit of the random, a key or an extension makes the transcripts differ, which the client or the server
    // detects.
    #expect(refused > position / 2, "\(refused) of \(position)")
  }

  @Test(arguments: versions) func anEndAnywhereInTheHandshakeHasItsOwnError(version: TLSVersion) throws {
    let context = try context()
    let whole = try talk(context, version)
    whole.client.receive()
    for count in 0..<whole.client.takeOutput().count {
      var talk = try talk(context, version)
      talk.client.receive()
      try talk.deliver(Array(talk.client.takeOutput().prefix(count)))
      talk.server.receiveEndOfCiphertext()
      #expect(throws: TLSError.closedDuringHandshake) { try talk.server.advanceHandshake() }
    }
  }

  @Test(arguments: versions) func noTruncatedRequestReachesTheReaderAndTheTruncationIsReported(version: TLSVersion)
    throws
  {
    let context = try context()
    var size = 1
    var cut = 0
    while cut < size {
      var talk = try talk(context, version)
      try talk.converse()
      talk.client.send(Array("hello".utf8))
      let record = talk.client.takeOutput()
      size = record.count
      try talk.deliver(Array(record.prefix(cut)))
      talk.server.receiveEndOfCiphertext()
      #expect(throws: TLSError.truncated) { try talk.readAll() }
      #expect(talk.received.isEmpty)
      // The client may have closed only its sending side.
      try talk.server.write([1].span)
      talk.client.receive(talk.server.takeOutput())
      #expect(talk.client.received == [1])
      cut += 1
    }
  }

  @Test(arguments: versions) func garbageAfterTheHandshakeIsRefusedWithAnAlert(version: TLSVersion) throws {
    let context = try context()
    var random = SeededGenerator(seed: 2)
    for length in [5, 6, 100, 20_000] {
      var talk = try talk(context, version)
      try talk.converse()
      let garbage = (0..<length).map { _ in UInt8.random(in: 64...255, using: &random) }
      #expect(throws: TLSError.self) { try talk.deliver(garbage) }
      #expect(talk.server.hasPendingCiphertext, "an alert")
      #expect(throws: TLSError.self) { try talk.deliver(garbage) }
      talk.client.receive(talk.server.takeOutput())
      #expect(talk.client.failureText != nil)
    }
  }
}
