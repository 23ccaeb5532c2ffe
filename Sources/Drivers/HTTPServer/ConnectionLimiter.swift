import ByteStreams
import Reactor

/// Where a client connects from, as far as one party can choose it: an IPv4 address, or the /64 of an IPv6 address, which is the
/// least that a single host is given (RFC 6177 §2). A limit per whole address would let one host have 2^64 times as many.
enum ClientOrigin: Hashable, Sendable {
  case ipv4(UInt32)
  case ipv6(prefix: UInt64)
  /// A Unix-domain socket. The file's permissions decide who may connect, so its peers are not limited one by one.
  case local

  init(_ address: SocketAddress) {
    // Unmapped: an IPv4 client may be seen through an IPv6 socket.
    switch address.ip?.unmapped {
    case .ipv4(let address)?: self = .ipv4(address)
    case .ipv6(let high, _, _)?: self = .ipv6(prefix: high)
    case nil: self = .local
    }
  }
}

/// Limits the connections to one kind of listener, over all loops: the kernel distributes one client's connections over the loops,
/// so no loop alone can count them.
struct ConnectionLimiter {
  /// Whether one more connection is accepted.
  enum Verdict: Equatable {
    case admitted
    case tooMany
    case tooManyFromOrigin
  }

  private let limit: Int
  private let limitPerOrigin: Int
  private(set) var count = 0
  private var countByOrigin: [ClientOrigin: Int] = [:]

  /// - Parameters:
  ///   - limit: connections at once.
  ///   - limitPerOrigin: of those, from one origin; it does not apply to `.local`.
  init(limit: Int, limitPerOrigin: Int) {
    self.limit = limit
    self.limitPerOrigin = limitPerOrigin
  }

  /// Origins that have a connection. An origin without one is forgotten, so that the table does not grow.
  var originCount: Int { countByOrigin.count }

  /// Counts a connection from `origin`, if there is room for it.
  mutating func admit(_ origin: ClientOrigin) -> Verdict {
    guard count < limit else { return .tooMany }
    let others = countByOrigin[origin, default: 0]
    guard others < limitPerOrigin || origin == .local else { return .tooManyFromOrigin }
    count += 1
    countByOrigin[origin] = others + 1
    return .admitted
  }

  /// A connection that was admitted has ended.
  mutating func release(_ origin: ClientOrigin) {
    guard let others = countByOrigin[origin] else { preconditionFailure("no connection of this origin was admitted") }
    count -= 1
    countByOrigin[origin] = others > 1 ? others - 1 : nil
  }
}
