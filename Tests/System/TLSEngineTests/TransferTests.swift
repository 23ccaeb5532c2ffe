import ByteStreams
import COpenSSL
import TLSEngine
import TLSSupport
import Testing

@Suite struct TransferTests {
  @Test(arguments: [TLSVersion.v1_2, .v1_3])
  func transfersAMebibyteBothWays(version: TLSVersion) throws {
    let payload = pattern(1 << 20)
    var talk = try Conversation(pieceSize: 1000) { $0.maximumVersion = version }
    try talk.handshake()
    try talk.sendToServer(payload)
    #expect(talk.server.received == payload)
    talk.server.send(payload)
    try talk.deliverFromServer()
    #expect(talk.received == payload)
    #expect(talk.client.receivedCiphertextCount == 0)
  }

  @Test(arguments: ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES256-GCM-SHA384"])
  func transfersBytesWithEachKindOfCipher(cipher: String) throws {
    let options = TestServer.Options(versions: TLS1_2_VERSION...TLS1_2_VERSION, tls12Cipher: cipher)
    var talk = try Conversation(TestAuthority(), options)
    try talk.handshake()
    let payload = pattern(70_000)
    try talk.sendToServer(payload)
    #expect(talk.server.received == payload)
    talk.server.send(payload)
    try talk.deliverFromServer()
    #expect(talk.received == payload)
  }

  @Test(arguments: [0, 1, 16_383, 16_384, 16_385, 32_768])
  func splitsAWriteIntoRecordsOf16KiB(count: Int) throws {
    var talk = try Conversation()
    try talk.handshake()
    let payload = pattern(count)
    try talk.client.write(payload.span)
    let ciphertext = talk.client.takeOutput()
    var records = 0
    var position = 0
    while position < ciphertext.count {
      position += 5 + Int(ciphertext[position + 3]) << 8 + Int(ciphertext[position + 4])
      records += 1
    }
    #expect(records == (count + 16_383) / 16_384)
    #expect(position == ciphertext.count)
    talk.server.receive(ciphertext)
    #expect(talk.server.received == payload)
  }

  @Test func readsNoMoreThanRequested() throws {
    var talk = try Conversation()
    try talk.handshake()
    try talk.deliverFromServer()
    let payload = pattern(50_000)
    talk.server.send(payload)
    talk.client.receive(ciphertext: talk.server.takeOutput().span)
    var plaintext = ByteQueue()
    #expect(try talk.client.read(into: &plaintext, atMost: 0) == .bytes(0))
    #expect(try talk.client.read(into: &plaintext, atMost: 10) == .bytes(10))
    #expect(plaintext.count == 10)
    #expect(try talk.client.read(into: &plaintext, atMost: 20_000) == .bytes(20_000))
    #expect(try talk.client.read(into: &plaintext, atMost: .max) == .bytes(29_990))
    #expect(try talk.client.read(into: &plaintext, atMost: .max) == .needsCiphertext)
    #expect(plaintext.copyBytes() == payload)
  }

  @Test func deliversDataThatArrivesWithTheEndOfTheHandshake() throws {
    // TLS 1.2: the server may send data in the same flight as its Finished.
    var talk = try Conversation { $0.maximumVersion = .v1_2 }
    _ = try talk.client.advanceHandshake()
    talk.server.receive(talk.client.takeOutput())
    try talk.deliverFromServer()
    talk.server.receive(talk.client.takeOutput())
    #expect(talk.server.isComplete)
    talk.server.send(Array("early".utf8))
    try talk.deliverFromServer()
    #expect(talk.received == Array("early".utf8))
  }

  @Test func followsAnUpdateOfTheKeys() throws {
    var talk = try Conversation { $0.minimumVersion = .v1_3 }
    try talk.handshake()
    try talk.deliverFromServer()
    talk.server.updateKeys()
    talk.server.send([1, 2, 3])
    try talk.deliverFromServer()
    #expect(talk.received == [1, 2, 3])
    // The server has requested a key update of the client. The client sends it before its next data.
    try talk.sendToServer([4, 5, 6])
    #expect(talk.server.received == [4, 5, 6])
    #expect(!talk.server.hasFailed)
  }

  /// Renegotiation on request: an old attack that makes a client compute endlessly, or splices sessions
  /// (CVE-2009-3555).
  @Test func doesNotRenegotiate() throws {
    var talk = try Conversation { $0.maximumVersion = .v1_2 }
    try talk.handshake()
    talk.server.requestRenegotiation()
    try talk.deliverFromServer()
    // The client responds with a warning alert, and the connection continues.
    let output = talk.client.takeOutput()
    #expect(output.first == UInt8(SSL3_RT_ALERT))
  }

  @Test func givesTheDriverItsQueuesWithoutACopy() throws {
    var talk = try Conversation()
    try talk.handshake()
    try talk.deliverFromServer()
    try talk.client.write(pattern(100).span)
    let whole = talk.client.pendingCiphertextCount
    var sent: [UInt8] = []
    // The socket accepts a few bytes at a time.
    while talk.client.hasPendingCiphertext {
      talk.client.sendCiphertext { queue in
        let count = min(7, queue.count)
        sent += [UInt8](copying: queue.bytes.extracting(first: count))
        queue.consume(count)
      }
    }
    #expect(sent.count == whole)
    talk.server.receive(sent)
    #expect(talk.server.received == pattern(100))
    talk.server.send(pattern(200))
    let output = talk.server.takeOutput()
    talk.client.receiveCiphertext { $0.append(output.span) }
    try talk.readAll()
    #expect(talk.received == pattern(200))
    talk.client.releaseIdleStorage()
    #expect(talk.client.sendCiphertext { $0.allocatedBytes } + talk.client.receiveCiphertext { $0.allocatedBytes } == 0)
  }

  @Test func appendsToPendingCiphertext() throws {
    var talk = try Conversation()
    try talk.handshake()
    var waiting = ByteQueue()
    try talk.client.write([1, 2].span)
    talk.client.takeCiphertext(into: &waiting)
    try talk.client.write([3].span)
    talk.client.takeCiphertext(into: &waiting)
    #expect(!talk.client.hasPendingCiphertext)
    talk.server.receive(waiting.copyBytes())
    #expect(talk.server.received == [1, 2, 3])
  }

  @Test(arguments: [TLSVersion.v1_2, .v1_3]) func releasingIdleMemoryLosesNoData(version: TLSVersion) throws {
    var talk = try Conversation(pieceSize: 11) { $0.maximumVersion = version }
    try talk.handshake()
    try talk.deliverFromServer()
    for round in 1...3 {
      talk.server.send(pattern(100))
      // A connection with a part of a record, or with partly read plaintext, is not idle.
      let record = talk.server.takeOutput()
      try talk.deliver(Array(record[..<50]))
      talk.client.releaseIdleStorage()
      let rest = Array(record[50...])
      talk.client.receive(ciphertext: rest.span)
      var plaintext = ByteQueue()
      #expect(try talk.client.read(into: &plaintext, atMost: 30) == .bytes(30))
      talk.client.releaseIdleStorage()
      talk.received += plaintext.copyBytes()
      try talk.readAll()
      #expect(talk.received.count == round * 100)
      try talk.sendToServer([UInt8(round)])
      talk.client.releaseIdleStorage()
    }
    #expect(talk.received == pattern(100) + pattern(100) + pattern(100))
    #expect(talk.server.received == [1, 2, 3])
  }

  @Test func oneContextServesManyThreads() async throws {
    let authority = TestAuthority()
    let context = try TLSContext(trusting(authority))
    // The threads only read the identity. Each thread makes its own server from it.
    nonisolated(unsafe) let identity = authority.issue("DNS:upstream.test")
    try await withThrowingTaskGroup(of: Int.self) { group in
      for host in ["upstream.test", "other.test", "upstream.test", "other.test"] {
        group.addTask {
          var completed = 0
          for _ in 0..<20 {
            var talk = Conversation(try TLSConnection(to: host, context: context), TestServer(identity))
            try? talk.handshake()
            if talk.client.isHandshakeComplete { completed += 1 }
          }
          return completed
        }
      }
      let completed = try await group.reduce(0, +)
      #expect(completed == 40)
    }
  }
}
