import ByteStreams
import Reactor

/// The part of a client's address that one party cannot vary freely: an IPv4 address, or the /64 of an IPv6 address. A /64 is the
/// least that a single host is assigned (RFC 6177 §2). A limit per whole address would allow one host 2^64 times as many
/// connections.
enum ClientOrigin: Hashable, Sendable {
  case ipv4(UInt32)
  case ipv6(prefix: UInt64)
  /// A Unix-domain socket. The file's permissions decide who may connect, so there is no limit per peer.
  case local

  init(_ address: SocketAddress) {
    // An IPv4 client may appear on an IPv6 socket with a mapped address.
    switch address.ip?.unmapped {
    case .ipv4(let address)?: self = .ipv4(address)
    case .ipv6(let high, _, _)?: self = .ipv6(prefix: high)
    case nil: self = .local
    }
  }
}

/// Limits the connections of one listener role, over all loops. The kernel distributes one client's connections over the loops, so
/// no single loop can count them.
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
  ///   - limit: maximum number of open connections.
  ///   - limitPerOrigin: maximum number from one origin; does not apply to `.local`.
  init(limit: Int, limitPerOrigin: Int) {
    self.limit = limit
    self.limitPerOrigin = limitPerOrigin
  }

  /// Number of origins with an open connection. Others are removed, so that the table does not grow.
  var originCount: Int { countByOrigin.count }

  /// Counts a connection from `origin` if no limit is reached.
  mutating func admit(_ origin: ClientOrigin) -> Verdict {
    guard count < limit else { return .tooMany }
    let others = countByOrigin[origin, default: 0]
    guard others < limitPerOrigin || origin == .local else { return .tooManyFromOrigin }
    count += 1
    countByOrigin[origin] = others + 1
    return .admitted
  }

  /// Records that an admitted connection has ended.
  mutating func release(_ origin: ClientOrigin) {
    guard let others = countByOrigin[origin] else { preconditionFailure("no connection of this origin was admitted") }
    count -= 1
    countByOrigin[origin] = others > 1 ? others - 1 : nil
  }
}
