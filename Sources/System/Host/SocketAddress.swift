import ByteStreams
import CLinux
import Glibc

/// The address of a socket: an IP address and port, or a path in the file system.
package enum SocketAddress: Hashable, Sendable, CustomStringConvertible {
  case ip(IPAddress, port: UInt16)
  case unix(path: String)

  package static func ipv4(_ address: UInt32, port: UInt16) -> SocketAddress { .ip(.ipv4(address), port: port) }
  package static func ipv6(high: UInt64, low: UInt64, port: UInt16, scope: UInt32) -> SocketAddress {
    .ip(.ipv6(high: high, low: low, scope: scope), port: port)
  }

  /// Maximum bytes of a path (`sun_path` without its terminator).
  package static var longestPath: Int { 107 }

  /// Parses a numeric address without brackets: `127.0.0.1`, `::1`, `fe80::1%eth0` (RFC 4007 §11). Returns nil for a
  /// host name, and if this machine has no interface with the name of the zone.
  package init?(numericHost host: String, port: UInt16) {
    let text = host.prefix { $0 != "%" }
    guard let address = IPAddress(String(text)) else { return nil }
    guard text.endIndex < host.endIndex else {
      self = .ip(address, port: port)
      return
    }
    guard case .ipv6(let high, let low, _) = address else { return nil }
    let zone = String(host[text.endIndex...].dropFirst())
    let named = unsafe if_nametoindex(zone)
    let scope = named > 0 ? named : UInt32(zone) ?? 0
    guard scope > 0 else { return nil }
    self = .ipv6(high: high, low: low, port: port, scope: scope)
  }

  private init(_ address: in6_addr, port: UInt16, scope: UInt32) {
    let halves = unsafe withUnsafeBytes(of: address) {
      unsafe ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }
    self = .ipv6(high: UInt64(bigEndian: halves.0), low: UInt64(bigEndian: halves.1), port: port, scope: scope)
  }

  /// Converts an address from the kernel; nil for families that are not used here.
  package init?(_ storage: sockaddr_storage) {
    switch Int32(storage.ss_family) {
    case AF_INET:
      let four = unsafe withUnsafeBytes(of: storage) { unsafe $0.loadUnaligned(as: sockaddr_in.self) }
      self = .ipv4(UInt32(bigEndian: four.sin_addr.s_addr), port: UInt16(bigEndian: four.sin_port))
    case AF_INET6:
      let six = unsafe withUnsafeBytes(of: storage) { unsafe $0.loadUnaligned(as: sockaddr_in6.self) }
      self.init(six.sin6_addr, port: UInt16(bigEndian: six.sin6_port), scope: six.sin6_scope_id)
    case AF_UNIX:
      // The path is empty for most clients, which bind no path, and for an abstract socket.
      self = unsafe withUnsafeBytes(of: storage) { raw in
        unsafe .unix(path: String(decoding: raw[2...].prefix(Self.longestPath).prefix { $0 != 0 }, as: UTF8.self))
      }
    default:
      return nil
    }
  }

  package var port: UInt16? {
    switch self {
    case .ip(_, let port): port
    case .unix: nil
    }
  }

  /// The IP address; nil for a path.
  package var ip: IPAddress? {
    switch self {
    case .ip(let address, _): address
    case .unix: nil
    }
  }

  /// The same address on another port.
  package func with(port: UInt16) -> SocketAddress {
    switch self {
    case .ip(let address, _): .ip(address, port: port)
    case .unix: self
    }
  }

  package var isIPv6: Bool { ip?.isIPv6 ?? false }

  package var family: Int32 {
    switch self {
    case .ip(let address, _): address.isIPv6 ? AF_INET6 : AF_INET
    case .unix: AF_UNIX
    }
  }

  /// The address in the usual notation: `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/drawbridge.sock`.
  package var description: String {
    switch self {
    case .ip(let address, let port): address.isIPv6 ? "[\(host)]:\(port)" : "\(host):\(port)"
    case .unix(let path): "unix:\(path)"
    }
  }

  /// The address without port or brackets, with its zone.
  package var host: String {
    switch self {
    case .ip(.ipv4(let address), _):
      return (0..<4).map { String(address >> (24 - 8 * UInt32($0)) & 255) }.joined(separator: ".")
    case .ip(.ipv6(let high, let low, let scope), _):
      var bytes = (high.bigEndian, low.bigEndian)
      var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
      guard unsafe inet_ntop(AF_INET6, &bytes, &text, socklen_t(text.count)) != nil else { return "::" }
      let address = String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
      return scope == 0 ? address : "\(address)%\(scope)"
    case .unix(let path):
      return path
    }
  }

  /// Calls `body` with the address in the kernel's form, which is valid during the call only.
  @unsafe package func withKernelAddress<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
    var storage = sockaddr_storage()
    let size = unsafe withUnsafeMutableBytes(of: &storage) { raw -> Int in
      switch self {
      case .ip(.ipv4(let address), let port):
        var four = sockaddr_in()
        four.sin_family = sa_family_t(AF_INET)
        four.sin_port = port.bigEndian
        four.sin_addr.s_addr = address.bigEndian
        unsafe raw.storeBytes(of: four, as: sockaddr_in.self)
        return MemoryLayout<sockaddr_in>.size
      case .ip(.ipv6(let high, let low, let scope), let port):
        var six = sockaddr_in6()
        six.sin6_family = sa_family_t(AF_INET6)
        six.sin6_port = port.bigEndian
        six.sin6_scope_id = scope
        unsafe withUnsafeMutableBytes(of: &six.sin6_addr) { address in
          unsafe address.storeBytes(of: high.bigEndian, as: UInt64.self)
          unsafe address.storeBytes(of: low.bigEndian, toByteOffset: 8, as: UInt64.self)
        }
        unsafe raw.storeBytes(of: six, as: sockaddr_in6.self)
        return MemoryLayout<sockaddr_in6>.size
      case .unix(let path):
        let bytes = Array(path.utf8.prefix(Self.longestPath))
        unsafe raw.storeBytes(of: sa_family_t(AF_UNIX), as: sa_family_t.self)
        for (offset, byte) in bytes.enumerated() {
          unsafe raw.storeBytes(of: byte, toByteOffset: 2 + offset, as: UInt8.self)
        }
        return 2 + bytes.count + 1
      }
    }
    return unsafe withUnsafePointer(to: &storage) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe body($0, socklen_t(size)) }
    }
  }
}
