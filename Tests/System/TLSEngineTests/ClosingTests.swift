import ByteStreams
import COpenSSL
import TLSEngine
import Testing

@Suite struct ClosingTests {
  static let versions = [TLSVersion.v1_2, .v1_3]

  func connected(_ version: TLSVersion) throws -> Conversation {
    var talk = try Conversation { $0.maximumVersion = version }
    try talk.handshake()
    try talk.deliverFromServer()
    return talk
  }

  @Test(arguments: versions) func reportsTheEndAfterCloseNotify(version: TLSVersion) throws {
    var talk = try connected(version)
    talk.server.send([1, 2, 3])
    talk.server.sendCloseNotify()
    try talk.deliverFromServer()
    talk.client.receiveEndOfCiphertext()
    try talk.readAll()
    #expect(talk.received == [1, 2, 3])
    #expect(talk.lastRead == .closed)
  }

  /// Attack: an attacker cuts the connection, so that a part of the data seems to be the whole.
  @Test(arguments: versions) func distinguishesTruncationFromTheEnd(version: TLSVersion) throws {
    var talk = try connected(version)
    talk.server.send([1, 2, 3])
    try talk.deliverFromServer()
    talk.client.receiveEndOfCiphertext()
    #expect(throws: TLSError.truncated) { try talk.readAll() }
    #expect(talk.received == [1, 2, 3])
  }

  /// A peer may close its sending side without close_notify and wait for the rest of the data.
  @Test(arguments: versions) func canStillWriteAfterTruncation(version: TLSVersion) throws {
    var talk = try connected(version)
    talk.client.receiveEndOfCiphertext()
    for _ in 0..<2 { #expect(throws: TLSError.truncated) { try talk.readAll() } }
    try talk.client.write([5].span)
    talk.client.sendCloseNotify()
    talk.server.receive(talk.client.takeOutput())
    #expect(talk.server.received == [5])
    #expect(talk.server.isClosed)
  }

  @Test(arguments: versions) func reportsTruncationWithinARecord(version: TLSVersion) throws {
    let talk = try connected(version)
    talk.server.send([1, 2, 3])
    let record = talk.server.takeOutput()
    for cut in 1..<record.count {
      var other = try connected(version)
      other.server.send([1, 2, 3])
      try other.deliver(Array(other.server.takeOutput()[..<cut]))
      other.client.receiveEndOfCiphertext()
      #expect(throws: TLSError.truncated) { try other.readAll() }
      #expect(other.received.isEmpty)
    }
  }

  @Test(arguments: versions) func dataBeforeATruncationIsReadFirst(version: TLSVersion) throws {
    let talk = try connected(version)
    talk.server.send([1, 2, 3])
    talk.client.receive(ciphertext: talk.server.takeOutput().span)
    talk.client.receiveEndOfCiphertext()
    var plaintext = ByteQueue()
    #expect(try talk.client.read(into: &plaintext, atMost: 2) == .bytes(2))
    #expect(try talk.client.read(into: &plaintext, atMost: 2) == .bytes(1))
    #expect(throws: TLSError.truncated) { try talk.client.read(into: &plaintext, atMost: 2) }
  }

  @Test(arguments: versions) func sendsCloseNotifyOnceAndContinuesReading(version: TLSVersion) throws {
    var talk = try connected(version)
    try talk.client.write([9].span)
    talk.client.sendCloseNotify()
    let output = talk.client.takeOutput()
    talk.client.sendCloseNotify()
    #expect(!talk.client.hasPendingCiphertext)
    talk.server.receive(output)
    #expect(talk.server.received == [9])
    #expect(talk.server.isClosed)
    talk.server.send([7, 8])
    talk.server.sendCloseNotify()
    try talk.deliverFromServer()
    #expect(talk.received == [7, 8])
    #expect(talk.lastRead == .closed)
  }

  @Test(arguments: versions) func canStillWriteAfterThePeersCloseNotify(version: TLSVersion) throws {
    var talk = try connected(version)
    talk.server.sendCloseNotify()
    try talk.deliverFromServer()
    #expect(talk.lastRead == .closed)
    try talk.client.write([5].span)
    talk.client.sendCloseNotify()
    talk.server.receive(talk.client.takeOutput())
    #expect(talk.server.received == [5])
    #expect(talk.server.isClosed)
  }

  @Test func anEndDuringTheHandshakeHasItsOwnError() throws {
    let talk = try Conversation()
    #expect(try talk.client.advanceHandshake() == .needsCiphertext)
    talk.client.sendCloseNotify()
    talk.client.receiveEndOfCiphertext()
    #expect(throws: TLSError.closedDuringHandshake) { try talk.client.advanceHandshake() }
  }
}
