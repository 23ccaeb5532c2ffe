import ByteStreams

/// The handshake with a SOCKS5 proxy (RFC 1928), with user name and password if the proxy requires them (RFC 1929).
///
///     choosing ──method 0──▶ connecting ──reply 0──▶ open
///         └─method 2─▶ authenticating ─status 0─▲
package struct SOCKSHandshake: ProxyHandshake, Sendable {
  /// The destination that the proxy connects to.
  package enum Destination: Hashable, Sendable {
    /// A name of 1 to 255 bytes, which the proxy resolves.
    case name(String)
    /// An IP address. Its scope is not sent, since it is valid only on this machine.
    case address(IPAddress)
  }

  private enum State {
    case initial
    case choosing
    case authenticating
    case connecting
    case open
  }

  private enum Method {
    static let none: UInt8 = 0
    static let password: UInt8 = 2
  }

  private static let version: UInt8 = 5
  /// The version of the username/password sub-negotiation (RFC 1929 §2).
  private static let authenticationVersion: UInt8 = 1

  private let destination: Destination
  private let port: UInt16
  private let credentials: ProxyCredentials?
  private var state = State.initial

  package init(to destination: Destination, port: UInt16, credentials: ProxyCredentials?) {
    if case .name(let name) = destination {
      precondition((1...255).contains(name.utf8.count), "the name must have 1 to 255 bytes")
    }
    precondition(credentials?.problem(forSOCKS: true) == nil, "the credentials are not valid")
    self.destination = destination
    self.port = port
    self.credentials = credentials
  }

  /// Stores no input. The caller keeps an incomplete reply in `input`. A reply has at most 262 bytes.
  package mutating func advance(
    _ input: inout ByteQueue, into output: inout ByteQueue
  ) throws(ProxyError) -> Bool {
    while true {
      switch state {
      case .initial:
        let methods = credentials == nil ? [Method.none] : [Method.none, Method.password]
        output.append([Self.version, UInt8(methods.count)] + methods)
        state = .choosing
      case .choosing:
        guard let method = try reply(&input, version: Self.version) else { return false }
        try choose(method, into: &output)
      case .authenticating:
        guard let status = try reply(&input, version: Self.authenticationVersion) else { return false }
        guard status == 0 else { throw .credentialsRefused(status: status) }
        request(into: &output)
      case .connecting:
        guard let length = try replyLength(input.bytes) else { return false }
        input.consume(length)
        state = .open
      case .open:
        return true
      }
    }
  }

  /// Takes a two-byte reply, a version and a value, and returns the value. Returns nil if more bytes are needed.
  private func reply(_ input: inout ByteQueue, version: UInt8) throws(ProxyError) -> UInt8? {
    guard input.count > 0 else { return nil }
    guard input.bytes[0] == version else { throw .notSOCKS5(input.bytes[0]) }
    guard input.count > 1 else { return nil }
    let value = input.bytes[1]
    input.consume(2)
    return value
  }

  private mutating func choose(_ method: UInt8, into output: inout ByteQueue) throws(ProxyError) {
    switch (method, credentials) {
    case (Method.none, _):
      request(into: &output)
    case (Method.password, let credentials?):
      output.append(Self.authenticationVersion)
      for text in [credentials.username, credentials.password] {
        output.append(UInt8(text.utf8.count))
        output.append(text)
      }
      state = .authenticating
    default:
      throw .noAcceptableMethod(chosen: method, offeredCredentials: credentials != nil)
    }
  }

  /// Appends the request (§4): version, CONNECT, reserved, address, port.
  private mutating func request(into output: inout ByteQueue) {
    output.append([Self.version, 1, 0])
    switch destination {
    case .address(.ipv4(let address)):
      output.append(1 as UInt8)
      output.append(bigEndian: address)
    case .name(let name):
      output.append([3, UInt8(name.utf8.count)])
      output.append(name)
    case .address(.ipv6(let high, let low, scope: _)):
      output.append(4 as UInt8)
      output.append(bigEndian: high)
      output.append(bigEndian: low)
    }
    output.append(bigEndian: port)
    state = .connecting
  }

  /// The length in bytes of the reply to the request (§6): version, reply, reserved, and the address and port that the
  /// proxy uses. Returns nil if more bytes are needed. A failure is reported at the second byte, because some proxies
  /// close the connection after this byte.
  private func replyLength(_ bytes: Span<UInt8>) throws(ProxyError) -> Int? {
    guard bytes.count > 0 else { return nil }
    guard bytes[0] == Self.version else { throw .notSOCKS5(bytes[0]) }
    guard bytes.count > 1 else { return nil }
    guard bytes[1] == 0 else { throw .notConnected(SOCKSReply(code: bytes[1])) }
    guard bytes.count > 4 else { return nil }
    let address: Int
    switch bytes[3] {
    case 1: address = 4
    case 3: address = 1 + Int(bytes[4])
    case 4: address = 16
    default: throw .unknownAddressType(bytes[3])
    }
    let length = 4 + address + 2
    return bytes.count >= length ? length : nil
  }
}

extension ByteQueue {
  fileprivate mutating func append(bigEndian value: some FixedWidthInteger) {
    for shift in stride(from: value.bitWidth - 8, through: 0, by: -8) {
      append(UInt8(truncatingIfNeeded: value >> shift))
    }
  }
}
