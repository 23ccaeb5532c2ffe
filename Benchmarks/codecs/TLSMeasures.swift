import ByteStreams
import COpenSSL
import TLSEngine

/// The TLS engine and OpenSSL with its own memory BIOs, both as clients of the same server, so cipher and records are
/// the same.
func measureTLS(_ comparison: Comparison, certificate: String, key: String) {
  for (name, record, count) in [("bulk", 16 * 1024, 64), ("small", 128, 4096)] {
    let megabytes = Double(record * count) / 1e6
    let plaintext = [UInt8](repeating: 0x61, count: record)
    let server = BareTLS(serverWith: certificate, key: key)
    let client = EngineClient(connectedTo: server)
    let bareServer = BareTLS(serverWith: certificate, key: key)
    let bareClient = BareTLS(clientOf: bareServer)
    comparison.run(
      "tls_receive_\(name)", unit: "MB/s", amount: megabytes,
      ours: {
        let pieces = server.records(of: plaintext, count)
        return timed { pieces.forEach(client.read) }
      },
      reference: {
        let pieces = bareServer.records(of: plaintext, count)
        return timed { pieces.forEach(bareClient.read) }
      })
    comparison.run(
      "tls_send_\(name)", unit: "MB/s", amount: megabytes,
      ours: { timed { for _ in 0..<count { client.write(plaintext) } } },
      reference: { timed { for _ in 0..<count { bareClient.writeAndDrop(plaintext) } } })
  }
}

private final class EngineClient {
  private let connection: TLSConnection
  private var plaintext = ByteQueue()
  private var ciphertext = ByteQueue()

  init(connectedTo server: BareTLS) {
    var settings = TLSClientSettings()
    settings.verification = .offForTestsOnly
    settings.applicationProtocols = []
    do {
      connection = try TLSConnection(to: "localhost", context: TLSContext(settings))
      while try connection.advanceHandshake() == .needsCiphertext { exchange(with: server) }
    } catch {
      fatalError("the handshake failed: \(error)")
    }
    exchange(with: server)
  }

  private func exchange(with server: BareTLS) {
    connection.takeCiphertext(into: &ciphertext)
    server.handshake(with: ciphertext.copyBytes())
    ciphertext.removeAll()
    connection.receive(ciphertext: server.takeOutput().span)
  }

  func read(_ piece: [UInt8]) {
    connection.receive(ciphertext: piece.span)
    do {
      while case .bytes = try connection.read(into: &plaintext, atMost: 1 << 20) {}
    } catch {
      fatalError("a record was refused: \(error)")
    }
    plaintext.removeAll()
  }

  func write(_ bytes: [UInt8]) {
    do {
      try connection.write(bytes.span)
    } catch {
      fatalError("nothing can be sent: \(error)")
    }
    connection.takeCiphertext(into: &ciphertext)
    ciphertext.removeAll()
  }
}

/// One end of a TLS connection that uses only OpenSSL.
private final class BareTLS {
  private let context: OpaquePointer
  private let connection: OpaquePointer
  private let incoming: OpaquePointer
  private let outgoing: OpaquePointer
  private var room = [UInt8](repeating: 0, count: 64 * 1024)

  init(serverWith certificate: String, key: String) {
    context = SSL_CTX_new(TLS_server_method())
    precondition(SSL_CTX_use_certificate_file(context, certificate, SSL_FILETYPE_PEM) == 1, "no certificate")
    precondition(SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1, "no key")
    connection = SSL_new(context)
    incoming = BIO_new(BIO_s_mem())
    outgoing = BIO_new(BIO_s_mem())
    SSL_set_bio(connection, incoming, outgoing)
    SSL_set_accept_state(connection)
  }

  init(clientOf server: BareTLS) {
    context = SSL_CTX_new(TLS_client_method())
    connection = SSL_new(context)
    incoming = BIO_new(BIO_s_mem())
    outgoing = BIO_new(BIO_s_mem())
    SSL_set_bio(connection, incoming, outgoing)
    SSL_set_connect_state(connection)
    for _ in 0..<4 {
      SSL_do_handshake(connection)
      server.handshake(with: takeOutput())
      let output = server.takeOutput()
      if !output.isEmpty { BIO_write(incoming, output, Int32(output.count)) }
    }
    precondition(SSL_is_init_finished(connection) == 1, "the handshake failed")
  }

  deinit {
    SSL_free(connection)
    SSL_CTX_free(context)
  }

  func handshake(with bytes: [UInt8]) {
    if !bytes.isEmpty { BIO_write(incoming, bytes, Int32(bytes.count)) }
    SSL_do_handshake(connection)
  }

  func takeOutput() -> [UInt8] {
    var output: [UInt8] = []
    while true {
      let count = BIO_read(outgoing, &room, Int32(room.count))
      if count <= 0 { return output }
      output += room.prefix(Int(count))
    }
  }

  /// `count` records, in the pieces that a socket would return.
  func records(of plaintext: [UInt8], _ count: Int) -> [[UInt8]] {
    for _ in 0..<count { precondition(SSL_write(connection, plaintext, Int32(plaintext.count)) > 0) }
    return cut(takeOutput(), into: 64 * 1024)
  }

  func read(_ piece: [UInt8]) {
    BIO_write(incoming, piece, Int32(piece.count))
    while SSL_read(connection, &room, Int32(room.count)) > 0 {}
  }

  func writeAndDrop(_ bytes: [UInt8]) {
    precondition(SSL_write(connection, bytes, Int32(bytes.count)) > 0)
    BIO_ctrl(outgoing, BIO_CTRL_RESET, 0, nil)
  }
}
