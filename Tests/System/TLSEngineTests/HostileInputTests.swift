import ByteStreams
import TLSEngine
import TLSSupport
import TestSupport
import Testing

/// Bytes that no legitimate peer sends. All of them lead to a typed error or to a wait for more. None leads to a crash
/// or to plaintext that was not sent.
@Suite struct HostileInputTests {
  let authority = TestAuthority()

  func client(_ version: TLSVersion = .v1_3) throws -> TLSConnection {
    try TLSConnection(to: "upstream.test", context: TLSContext(trusting(authority) { $0.maximumVersion = version }))
  }

  @Test(arguments: ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\0\0\0\0\0\0\0\0"])
  func reportsThatThePeerDoesNotSpeakTLS(response: String) throws {
    let client = try client()
    #expect(try client.advanceHandshake() == .needsCiphertext)
    client.receive(ciphertext: Array(response.utf8).span)
    #expect(throws: TLSError.notTLS) { try client.advanceHandshake() }
  }

  @Test func randomBytesInPlaceOfAHandshakeDoNotCrashTheClient() throws {
    var random = SeededGenerator(seed: 1)
    for length in 1..<400 {
      let client = try client()
      _ = try client.advanceHandshake()
      var bytes = (0..<length).map { _ in UInt8.random(in: 0...255, using: &random) }
      // Half of the inputs pass the first check, because they begin with the header of a handshake record.
      if length % 2 == 0 {
        let header: [UInt8] = [22, 3, 3, UInt8(length >> 8), UInt8(length & 255)]
        bytes.replaceSubrange(0..<min(5, length), with: header.prefix(length))
      }
      client.receive(ciphertext: bytes.span)
      client.receiveEndOfCiphertext()
      #expect(throws: TLSError.self) { try client.advanceHandshake() }
      #expect(throws: TLSError.self) { try client.advanceHandshake() }
    }
  }

  /// Flips one bit in every byte of the server's first flight.
  @Test(arguments: [TLSVersion.v1_2, .v1_3])
  func noFlippedByteOfTheHandshakeCrashesTheClient(version: TLSVersion) throws {
    let identity = authority.issue("DNS:upstream.test")
    var random = SeededGenerator(seed: 2)
    var position = 0
    var refused = 0
    while true {
      let client = try client(version)
      var talk = Conversation(client, TestServer(identity))
      _ = try client.advanceHandshake()
      talk.server.receive(client.takeOutput())
      var flight = talk.server.takeOutput()
      guard position < flight.count else { break }
      flight[position] ^= 1 << UInt8.random(in: 0...7, using: &random)
      do {
        try talk.deliver(flight)
        client.receiveEndOfCiphertext()
        try talk.handshake()
        // The flipped bit has no meaning, such as a bit in a record's legacy version. The handshake must succeed.
        #expect(client.isHandshakeComplete)
      } catch {
        refused += 1
      }
      #expect(talk.received.isEmpty)
      position += 1
    }
    #expect(refused > position * 9 / 10, "\(refused) of \(position)")
  }

  @Test(arguments: [TLSVersion.v1_2, .v1_3]) func noFlippedBitOfARecordReachesTheReader(version: TLSVersion) throws {
    let identity = authority.issue("DNS:upstream.test")
    let message = Array("transfer 100".utf8)
    var bit = 0
    while true {
      var talk = Conversation(try client(version), TestServer(identity))
      try talk.handshake()
      try talk.deliverFromServer()
      talk.server.send(message)
      var record = talk.server.takeOutput()
      guard bit < record.count * 8 else { break }
      record[bit / 8] ^= 1 << UInt8(bit % 8)
      var failure: TLSError?
      do {
        try talk.deliver(record)
        talk.client.receiveEndOfCiphertext()
        try talk.readAll()
      } catch { failure = error }
      // A flipped bit in the body of a record always leads to this error. A flipped bit in its header may also lead to
      // a wait, or have no effect.
      if bit >= 40 { #expect(failure == .badRecord, "bit \(bit)") }
      #expect(failure != nil && (talk.received.isEmpty || talk.received == message))
      bit += version == .v1_2 ? 3 : 1
    }
  }

  @Test func recordsOutOfOrderOrTwiceAreRefused() throws {
    let identity = authority.issue("DNS:upstream.test")
    for order in [[1, 0], [0, 0], [1]] {
      var talk = Conversation(try client(), TestServer(identity))
      try talk.handshake()
      try talk.deliverFromServer()
      let records = [UInt8(1), 2].map { value in
        talk.server.send([value])
        return talk.server.takeOutput()
      }
      #expect(throws: TLSError.badRecord) {
        for index in order { try talk.deliver(records[index]) }
        try talk.readAll()
      }
      #expect(talk.received == (order == [0, 0] ? [1] : []))
    }
  }

  @Test func garbageAfterTheHandshakeGetsAnAlert() throws {
    var random = SeededGenerator(seed: 3)
    let identity = authority.issue("DNS:upstream.test")
    for length in [5, 6, 100, 20_000] {
      var talk = Conversation(try client(), TestServer(identity))
      try talk.handshake()
      try talk.deliverFromServer()
      let garbage = (0..<length).map { _ in UInt8.random(in: 64...255, using: &random) }
      #expect(throws: TLSError.self) { try talk.deliver(garbage) }
      #expect(talk.client.hasPendingCiphertext, "an alert")
      #expect(talk.client.receivedCiphertextCount == 0)
      #expect(throws: TLSError.self) { try talk.deliver(garbage) }
    }
  }

  @Test func plaintextIsNotAcceptedOnceKeysAreAgreed() throws {
    var talk = Conversation(try client(.v1_2), TestServer(authority.issue("DNS:upstream.test")))
    try talk.handshake()
    // A plaintext record of application data.
    #expect(throws: TLSError.self) { try talk.deliver([23, 3, 3, 0, 2, 0x68, 0x69]) }
    #expect(talk.received.isEmpty)
  }
}
