import ByteStreams
import HTTPCodec
import ProxyCodec

/// A proxy's responses before its tunnel is open (CONNECT or SOCKS5), and the bytes received through it.
///
/// Input: a byte for the pieces, a byte for the kind of proxy and whether credentials are set, then the bytes that the
/// proxy sends.
enum ProxyResponseTarget {
  private struct Failure: Error, Equatable { let text: String }

  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let options = reader.byte()
    let bytes = reader.rest
    let whole = try read(bytes, .none, options)
    let cut = try read(bytes, cuts, options)
    try whole.requireAgreement(with: cut, "in pieces it reads")
    guard options & 1 != 0 else { return }
    let length = ReferenceSOCKS.responseLength(bytes, hasCredentials: options & 2 != 0)
    try require(
      (length != nil) == whole.isOpen, "the tunnel is \(whole.isOpen ? "open" : "closed"), by RFC 1928 it is not")
    if let length {
      try require(
        whole.leftover == bytes.count - length,
        "\(whole.leftover) bytes belong to the tunnel instead of \(bytes.count - length)")
    }
  }

  private struct Reading {
    var transcript = Transcript<Failure>()
    var isOpen = false
    /// Number of bytes received through the tunnel.
    var leftover = 0

    /// Whether the tunnel is open or refused.
    var isDecided: Bool { isOpen || transcript.failure != nil }

    mutating func advance(
      _ handshake: inout some ProxyHandshake & ~Copyable, _ queue: inout ByteQueue, into sent: inout ByteQueue
    ) {
      guard !isDecided else { return }
      do throws(ProxyError) {
        isOpen = try handshake.advance(&queue, into: &sent)
      } catch {
        transcript.failure = Failure(text: error.description)
        // The following bytes are the body of the refusal.
        guard case .refused(let refusal, _) = error else { return }
        transcript.note("S", number: refusal.status)
        for (name, value) in refusal.fields { transcript.note("h", Array("\(name): \(value)".utf8)) }
      }
    }

    func requireAgreement(with other: Reading, _ how: String) throws(Finding) {
      try transcript.requireAgreement(with: other.transcript, how)
    }
  }

  private static func read(_ bytes: Span<UInt8>, _ cuts: Cuts, _ options: UInt8) throws(Finding) -> Reading {
    let credentials = options & 2 == 0 ? nil : ProxyCredentials(username: "user", password: "password")
    if options & 1 == 0 {
      let limits = options & 16 == 0 ? HTTPLimits() : .tightResponse
      var handshake = ConnectHandshake(to: "example.org:443", credentials: credentials, limits: limits)
      // The handshake may find an error in a line only at its end, but must find it then.
      return try read(bytes, cuts, &handshake, ending: Array("\r\n".utf8))
    }
    let destination: SOCKSHandshake.Destination =
      options & 4 == 0 ? .name("example.org") : .address(.ipv6(high: 1, low: 2, scope: 0))
    var handshake = SOCKSHandshake(to: destination, port: 443, credentials: credentials)
    return try read(bytes, cuts, &handshake, ending: [])
  }

  /// - Parameter ending: further bytes, used if `bytes` do not decide about the tunnel.
  private static func read(
    _ bytes: Span<UInt8>, _ cuts: Cuts, _ handshake: inout some ProxyHandshake & ~Copyable, ending: [UInt8]
  ) throws(Finding) -> Reading {
    var reading = Reading()
    var queue = ByteQueue()
    var sent = ByteQueue()
    for piece in cuts.pieces(of: bytes.count) {
      queue.append(bytes.extracting(piece))
      reading.advance(&handshake, &queue, into: &sent)
    }
    if !reading.isDecided, !ending.isEmpty {
      queue.append(ending.span)
      reading.advance(&handshake, &queue, into: &sent)
    }
    // The longest output: the methods, the credentials, and a request with a name.
    try require(sent.count <= 256, "\(sent.count) bytes were sent")
    reading.transcript.note("W", sent.bytes)
    reading.leftover = reading.isOpen ? queue.count : 0
    if reading.isOpen { reading.transcript.note("+", queue.bytes) }
    return reading
  }
}

/// Reads the responses of a SOCKS5 proxy in one step. They are complete, or no tunnel opens.
private enum ReferenceSOCKS {
  /// Length of the responses that open a tunnel; nil if no tunnel opens.
  static func responseLength(_ bytes: Span<UInt8>, hasCredentials: Bool) -> Int? {
    var responses: [[UInt8]] = []
    if bytes.count >= 2, bytes[1] == 2, hasCredentials {
      responses = [[5, 2], [1, 0]]
    } else {
      responses = [[5, 0]]
    }
    let prefix = responses.flatMap(\.self) + [5, 0]
    guard bytes.count >= prefix.count + 3 else { return nil }
    for (index, byte) in prefix.enumerated() where bytes[index] != byte { return nil }
    // After the prefix come a reserved byte, the type of the address, and its first byte, which is the length of a
    // name.
    let addresses: [UInt8: Int] = [1: 4, 3: 1 + Int(bytes[prefix.count + 2]), 4: 16]
    guard let address = addresses[bytes[prefix.count + 1]] else { return nil }
    let length = prefix.count + 2 + address + 2
    return bytes.count >= length ? length : nil
  }
}
