import ByteStreams
import HTTPCodec
import ProxyCodec

/// A proxy's answers before its tunnel is open (CONNECT or SOCKS5), and what comes through it.
///
/// Input: a byte that chooses the cuts, one that chooses the kind of proxy and whether we have credentials, then what the proxy
/// sends.
enum ProxyAnswerTarget {
  private struct Failure: Error, Equatable { let text: String }

  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let options = reader.byte()
    let bytes = reader.rest
    let whole = try read(bytes, .none, options)
    let cut = try read(bytes, cuts, options)
    try whole.requireAgreement(with: cut, "cut, it reads")
    guard options & 1 != 0 else { return }
    let length = ReferenceSOCKS.answersLength(bytes, hasCredentials: options & 2 != 0)
    try require(
      (length != nil) == whole.isOpen, "the tunnel is \(whole.isOpen ? "open" : "closed"), and by RFC 1928 it is not")
    if let length {
      try require(
        whole.leftover == bytes.count - length, "\(whole.leftover) bytes are the tunnel's, not \(bytes.count - length)")
    }
  }

  private struct Reading {
    var transcript = Transcript<Failure>()
    var isOpen = false
    /// Bytes that came through the tunnel.
    var leftover = 0

    /// Whether there is a tunnel, or none ever.
    var isDecided: Bool { isOpen || transcript.failure != nil }

    mutating func advance(
      _ handshake: inout some ProxyHandshake & ~Copyable, _ queue: inout ByteQueue, into sent: inout ByteQueue
    ) {
      guard !isDecided else { return }
      do throws(ProxyError) {
        isOpen = try handshake.advance(&queue, into: &sent)
      } catch {
        transcript.failure = Failure(text: error.description)
        // What follows is the body of the refusal.
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
      var limits = HTTPLimits()
      if options & 16 != 0 {
        // So tight that an input of a hundred bytes reaches them.
        limits.headBytes = 192
        limits.fieldCount = 5
      }
      var handshake = ConnectHandshake(to: "example.org:443", credentials: credentials, limits: limits)
      // A fault in a line may be noticed with its end only, but then it must be.
      return try read(bytes, cuts, &handshake, behind: Array("\r\n".utf8))
    }
    let destination: SOCKSHandshake.Destination =
      options & 4 == 0 ? .name("example.org") : .address(.ipv6(high: 1, low: 2, scope: 0))
    var handshake = SOCKSHandshake(to: destination, port: 443, credentials: credentials)
    return try read(bytes, cuts, &handshake, behind: [])
  }

  /// `behind`: what comes behind the bytes if all of them have decided nothing.
  private static func read(
    _ bytes: Span<UInt8>, _ cuts: Cuts, _ handshake: inout some ProxyHandshake & ~Copyable, behind: [UInt8]
  ) throws(Finding) -> Reading {
    var reading = Reading()
    var queue = ByteQueue()
    var sent = ByteQueue()
    for piece in cuts.pieces(of: bytes.count) {
      queue.append(bytes.extracting(piece))
      reading.advance(&handshake, &queue, into: &sent)
    }
    if !reading.isDecided, !behind.isEmpty {
      queue.append(behind.span)
      reading.advance(&handshake, &queue, into: &sent)
    }
    // The longest that is ever sent: methods, credentials and a request for a name.
    try require(sent.count <= 256, "\(sent.count) bytes were sent")
    reading.transcript.note("W", sent.bytes)
    reading.leftover = reading.isOpen ? queue.count : 0
    if reading.isOpen { reading.transcript.note("+", queue.bytes) }
    return reading
  }
}

/// What a SOCKS5 proxy answers in all, read the plain way: it is all there, or there is no tunnel.
private enum ReferenceSOCKS {
  /// Bytes of the answers that open a tunnel; nil where none is opened.
  static func answersLength(_ bytes: Span<UInt8>, hasCredentials: Bool) -> Int? {
    var answers: [[UInt8]] = []
    if bytes.count >= 2, bytes[1] == 2, hasCredentials {
      answers = [[5, 2], [1, 0]]
    } else {
      answers = [[5, 0]]
    }
    let prefix = answers.flatMap(\.self) + [5, 0]
    guard bytes.count >= prefix.count + 3 else { return nil }
    for (index, byte) in prefix.enumerated() where bytes[index] != byte { return nil }
    // Reserved, the type of the address, and the first byte of it.
    let addresses: [UInt8: Int] = [1: 4, 3: 1 + Int(bytes[prefix.count + 2]), 4: 16]
    guard let address = addresses[bytes[prefix.count + 1]] else { return nil }
    let length = prefix.count + 2 + address + 2
    return bytes.count >= length ? length : nil
  }
}
