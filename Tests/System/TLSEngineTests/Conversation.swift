import ByteStreams
import TLSEngine
import TLSSupport

/// A client under test and a server. The test moves the bytes between them.
struct Conversation: ~Copyable {
  let client: TLSConnection
  let server: TestServer
  /// The largest piece of data that the client gets at once.
  var pieceSize = Int.max
  /// Everything that the client has decrypted.
  var received: [UInt8] = []
  /// The last result of `read`.
  var lastRead = TLSConnection.ReadResult.needsCiphertext

  init(_ client: TLSConnection, _ server: TestServer, pieceSize: Int = .max) {
    self.client = client
    self.server = server
    self.pieceSize = pieceSize
  }

  /// A conversation between a client that trusts only `authority` and a server with a valid certificate.
  init(
    host: String = "upstream.test", _ authority: TestAuthority = TestAuthority(),
    _ options: TestServer.Options = .init(),
    pieceSize: Int = .max, _ change: (inout TLSClientSettings) -> Void = { _ in }
  ) throws {
    let context = try TLSContext(trusting(authority, change))
    try self.init(
      TLSConnection(to: host, context: context), TestServer(authority.issue("DNS:upstream.test"), options),
      pieceSize: pieceSize)
  }

  /// Runs until both sides are done, or the client throws. The server receives the client's output even then.
  mutating func handshake() throws(TLSError) {
    defer { server.receive(client.takeOutput()) }
    while try client.advanceHandshake() == .needsCiphertext {
      server.receive(client.takeOutput())
      let flight = server.takeOutput()
      if flight.isEmpty { throw .closedDuringHandshake }
      try deliver(flight)
    }
  }

  /// Passes `bytes` to the client in pieces. After each piece, the client makes as much progress as it can.
  mutating func deliver(_ bytes: [UInt8]) throws(TLSError) {
    var position = 0
    while position < bytes.count {
      let piece = Array(bytes[position..<min(bytes.count, position + min(pieceSize, bytes.count))])
      position += piece.count
      client.receive(ciphertext: piece.span)
      if try client.advanceHandshake() == .complete { try readAll() }
    }
  }

  /// Reads until the client needs more ciphertext, or reaches the end.
  mutating func readAll(atMost limit: Int = 64 << 10) throws(TLSError) {
    var plaintext = ByteQueue()
    defer { received += plaintext.copyBytes() }
    repeat {
      lastRead = try client.read(into: &plaintext, atMost: limit)
    } while lastRead != .needsCiphertext && lastRead != .closed
  }

  /// Passes the server's output to the client.
  mutating func deliverFromServer() throws(TLSError) { try deliver(server.takeOutput()) }

  mutating func sendToServer(_ bytes: [UInt8]) throws(TLSError) {
    try client.write(bytes.span)
    server.receive(client.takeOutput())
  }
}

/// Settings that trust `authority` and nothing else.
func trusting(_ authority: TestAuthority, _ change: (inout TLSClientSettings) -> Void = { _ in }) -> TLSClientSettings {
  var settings = TLSClientSettings()
  settings.trust = .init(systemStore: false, caPEM: authority.certificatePEM)
  change(&settings)
  return settings
}

extension TLSConnection {
  func takeOutput() -> [UInt8] {
    var output = ByteQueue()
    takeCiphertext(into: &output)
    return output.copyBytes()
  }
}

/// A pattern of bytes that shows if any byte was shifted, lost or duplicated.
func pattern(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) } }
