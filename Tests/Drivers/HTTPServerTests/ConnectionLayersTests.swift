import ByteStreams
import Foundation
import Host
import ProxyCodec
import Reactor
import TLSEngine
import Testing

@testable import HTTPServer

/// The header of the PROXY protocol and TLS below HTTP. The test moves the bytes. The client uses the same TLS engine;
/// Tests/Integration uses other clients.
@Suite struct ConnectionLayersTests {
  /// Both ends of a connection. The server's end is used on a loop's thread.
  private final class Connection {
    private struct Server {
      let channel: Channel
      let layers: ConnectionLayers
    }

    let client: TLSConnection
    private let served: ServedApplication
    private let peer: Int32
    nonisolated(unsafe) private var server: Server?
    private(set) var plaintext: [UInt8] = []

    init(expectsHeader: Bool = false) throws {
      served = try ServedApplication()
      let (descriptor, peer) = socketPair()
      // The smallest size that the kernel allows.
      var size: Int32 = 1
      unsafe setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &size, socklen_t(MemoryLayout<Int32>.size))
      self.peer = peer
      var settings = TLSClientSettings()
      settings.trust = .init(systemStore: false, caPEM: ConnectionLayersTests.pem)
      client = try TLSConnection(to: "localhost", context: TLSContext(settings, contents: [:]))
      _ = try client.advanceHandshake()
      var own = TLSServerSettings()
      (own.certificateFile, own.keyFile) = ("pem", "pem")
      let certificate = CurrentCertificate(
        try TLSServerContext(own, contents: ["pem": Array(ConnectionLayersTests.pem.utf8)]))
      nonisolated(unsafe) var server: Server?
      _ = served.onLoop { worker in
        guard let channel = try? Channel(descriptor: descriptor, loop: worker.loop) else { return false }
        let layers = ConnectionLayers(
          from: .unix(path: ""), expectsHeader: expectsHeader, certificate: certificate, handshakes: worker.handshakes)
        server = Server(channel: channel, layers: layers)
        return true
      }
      self.server = server
    }

    deinit {
      close()
      _ = Foundation.close(peer)
    }

    // MARK: The server

    private func onLoop<Fact: Sendable>(_ fact: @escaping (Server) -> Fact) -> Fact? {
      // Lets the loop process the client's actions first.
      _ = served.onLoop { _ in true }
      guard let server else { return nil }
      nonisolated(unsafe) let (ends, body) = (server, fact)
      return served.onLoop { _ in body(ends) }
    }

    /// The result of the server's next read, as one word.
    func receive() -> String {
      onLoop { server in
        var plaintext = ByteQueue()
        switch server.layers.receive(server.channel, atMost: 1 << 16, into: &plaintext) {
        case .bytes: return plaintext.bytes.text()
        case .wouldBlock: return "would block"
        case .endOfStream: return "end"
        case .failed: return "failed"
        }
      } ?? "nothing"
    }

    /// Sends the pending bytes.
    func flush() -> OutputQueue.FlushResult? {
      onLoop { server in
        var empty = OutputQueue()
        var scratch = ByteQueue()
        return server.layers.flush(&empty, to: server.channel, &scratch)
      }
    }

    func write(_ bytes: [UInt8]) -> OutputQueue.FlushResult? {
      onLoop { server in server.layers.send(bytes.span, to: server.channel) }
    }

    @discardableResult
    func sendClose() -> OutputQueue.FlushResult? { onLoop { server in server.layers.sendClose(to: server.channel) } }

    /// Fills the kernel's buffer, so that nothing more can be sent. Returns the number of bytes, which the client must
    /// skip.
    func fill() -> Int? {
      onLoop { server in
        let bytes = [UInt8](repeating: 0, count: 1 << 16)
        var total = 0
        while case .bytes(let count) = server.channel.send(bytes.span) { total += count }
        return total
      }
    }

    func close() {
      _ = onLoop { server in if !server.channel.isClosed { server.channel.close() } }
    }

    var pendingBytes: Int? { onLoop { $0.layers.pendingBytes } }
    var isEstablished: Bool? { onLoop { $0.layers.isEstablished } }
    var failure: String? { onLoop { $0.layers.failure?.description } ?? nil }
    var namedClient: String? { onLoop { $0.layers.client?.description } ?? nil }

    // MARK: The client

    /// Returns the client's output.
    func flight() -> [UInt8] {
      var output = ByteQueue()
      client.takeCiphertext(into: &output)
      return output.copyBytes()
    }

    func send(_ bytes: [UInt8]) {
      let sent = unsafe bytes.withUnsafeBytes { unsafe Foundation.write(peer, $0.baseAddress, $0.count) }
      #expect(sent == bytes.count)
    }

    func endSending() { shutdown(peer, Int32(SHUT_WR)) }

    /// Returns all bytes that the kernel has for the client.
    func arrived() -> [UInt8] {
      var bytes: [UInt8] = []
      var room = [UInt8](repeating: 0, count: 1 << 16)
      while true {
        let count = unsafe read(peer, &room, room.count)
        guard count > 0 else { return bytes }
        bytes += room[..<count]
      }
    }

    /// Passes the received bytes to the client. Returns the state of its stream, as one word.
    @discardableResult
    func deliver(isEnd: Bool = false) throws -> String {
      client.receive(ciphertext: arrived().span)
      if isEnd { client.receiveEndOfCiphertext() }
      guard try client.advanceHandshake() == .complete else { return "handshake" }
      while true {
        var piece = ByteQueue()
        do throws(TLSError) {
          switch try client.read(into: &piece, atMost: 1 << 16) {
          case .bytes: plaintext += piece.copyBytes()
          case .needsCiphertext: return "open"
          case .closed: return "closed"
          }
        } catch { return error.description }
      }
    }

    func establish() throws {
      for _ in 0..<20 where !client.isHandshakeComplete {
        send(flight())
        #expect(receive() == "would block")
        _ = flush()
        try deliver()
      }
      send(flight())
      #expect(receive() == "would block")
      #expect(isEstablished == true)
    }
  }

  @Test func aHandshakeEndsInPlaintextBothWays() throws {
    let connection = try Connection()
    try connection.establish()
    try connection.client.write(Array("hello".utf8).span)
    connection.send(connection.flight())
    #expect(connection.receive() == "hello")
    #expect(connection.write(Array("world".utf8)) == .done)
    try connection.deliver()
    #expect(connection.plaintext == Array("world".utf8))
    connection.sendClose()
    #expect(try connection.deliver() == "closed")
  }

  @Test(arguments: [true, false]) func theHeaderMayArriveWithTheHandshakeOrBeforeIt(isTogether: Bool) throws {
    let connection = try Connection(expectsHeader: true)
    let header = Array("PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n".utf8)
    if isTogether {
      connection.send(header + connection.flight())
    } else {
      for byte in header {
        connection.send([byte])
        #expect(connection.receive() == "would block")
      }
      connection.send(connection.flight())
    }
    #expect(connection.receive() == "would block")
    try connection.deliver()
    try connection.establish()
    #expect(connection.namedClient == "203.0.113.7:4711")
  }

  @Test func aMalformedHeaderFails() throws {
    let connection = try Connection(expectsHeader: true)
    connection.send(connection.flight())
    #expect(connection.receive() == "failed")
    #expect(connection.failure == ProxyHeaderError.noHeader.description)
    #expect(connection.arrived().isEmpty)
  }

  /// The kernel may not take a whole handshake message: the client's window may be small, or the list of authorities
  /// long.
  @Test func handshakeMessagesThatTheKernelDoesNotTakeAreSentLater() throws {
    let connection = try Connection()
    let filled = connection.fill()
    connection.send(connection.flight())
    #expect(connection.receive() == "would block")
    #expect(connection.flush() == .blocked)
    #expect(connection.pendingBytes ?? 0 > 500)
    // The client reads.
    #expect(connection.arrived().count == filled)
    #expect(connection.flush() == .done)
    #expect(connection.pendingBytes == 0)
    try connection.deliver()
    try connection.establish()
  }

  /// If the client got close_notify, it would take a truncated response for complete.
  @Test func aResponseThatIsCutHasNoCloseNotify() throws {
    let connection = try Connection()
    try connection.establish()
    let response = [UInt8](repeating: 7, count: 100_000)
    #expect(connection.write(response) == .blocked)
    // There is room again, but the rest of the response was not sent.
    try connection.deliver()
    connection.sendClose()
    #expect(connection.arrived().isEmpty)
    connection.close()
    #expect(try connection.deliver(isEnd: true) == TLSError.truncated.description)
    #expect(connection.plaintext.count < response.count)
  }

  @Test func aCompleteResponseEndsWithCloseNotify() throws {
    let connection = try Connection()
    try connection.establish()
    let response = [UInt8](repeating: 7, count: 100_000)
    var result = connection.write(response)
    while result == .blocked {
      try connection.deliver()
      result = connection.flush()
    }
    #expect(result == .done)
    try connection.deliver()
    connection.sendClose()
    #expect(try connection.deliver() == "closed")
    #expect(connection.plaintext == response)
  }

  /// The client has not read the last response, which fills the kernel's buffer.
  @Test func aCloseNotifyThatTheKernelDoesNotTakeIsSentLater() throws {
    let connection = try Connection()
    try connection.establish()
    try connection.deliver()
    let filled = connection.fill()
    #expect(connection.sendClose() == .blocked)
    #expect(connection.arrived().count == filled)
    #expect(connection.flush() == .done)
    #expect(try connection.deliver() == "closed")
  }

  @Test func anEndDuringTheHandshakeFailsAndAnEndBeforeItDoesNot() throws {
    let cut = try Connection()
    cut.send(Array(cut.flight().prefix(100)))
    #expect(cut.receive() == "would block")
    cut.endSending()
    #expect(cut.receive() == "failed")
    #expect(cut.failure == ConnectionLayers.Failure.tls(.closedDuringHandshake).description)
    let probe = try Connection()
    probe.endSending()
    #expect(probe.receive() == "end")
    #expect(probe.failure == nil)
  }

  /// A self-signed certificate for localhost, valid until 2100, and its key. Nothing else uses them.
  private static let pem = """
    -----BEGIN CERTIFICATE-----
    MIIBNzCB3qADAgECAgEBMAoGCCqGSM49BAMCMA8xDTALBgNVBAMMBHRlc3QwIBcN
    MDAwMTAxMDAwMDAwWhgPMjEwMDAxMDEwMDAwMDBaMA8xDTALBgNVBAMMBHRlc3Qw
    WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATzJcxavMt+yZZxk9j1Vg3U6XKIw5yw
    fxhJe2rk2/Prq2M5qqMfIAtw+5e+QRjx8CSUsPF0cuYyj1cNStRfzgppoykwJzAP
    BgNVHRMBAf8EBTADAQH/MBQGA1UdEQQNMAuCCWxvY2FsaG9zdDAKBggqhkjOPQQD
    AgNIADBFAiEAsCPuylZ3fVx6OAWZ4vLF4E7y2O3OUaNeSm7RVhblvw0CIGq0Jm2T
    XJr5eOBpRBqZZ2qJtU31KDi2v5ozM7X8sIOO
    -----END CERTIFICATE-----
    -----BEGIN PRIVATE KEY-----
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgK+LlLz3GV1e/UQb9
    g60YXKBEw5Gi24rIN5rl3LU+0cqhRANCAATzJcxavMt+yZZxk9j1Vg3U6XKIw5yw
    fxhJe2rk2/Prq2M5qqMfIAtw+5e+QRjx8CSUsPF0cuYyj1cNStRfzgpp
    -----END PRIVATE KEY-----

    """
}
