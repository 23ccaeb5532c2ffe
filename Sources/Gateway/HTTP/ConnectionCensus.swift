import ByteStreams
import Reactor

/// From where a client comes, as far as one party can choose it: an IPv4 address, or the /64 of an IPv6 address, which is the
/// least that a single host is given (RFC 6177 §2); who counted whole addresses would be flooded from 2^64 of them.
enum ClientOrigin: Hashable, Sendable {
  case ipv4(UInt32)
  case ipv6(prefix: UInt64)
  /// A Unix-domain socket: its peers are told apart by the file's permissions, and not counted one by one.
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

/// Who is connected to one kind of listener, over all loops: the kernel deals one client's connections out to every loop, so
/// no loop alone can tell how many there are.
struct ConnectionCensus {
  /// Whether one more may come.
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
  ///   - limitPerOrigin: of those, from one origin; `.local` is not held to it.
  init(limit: Int, limitPerOrigin: Int) {
    self.limit = limit
    self.limitPerOrigin = limitPerOrigin
  }

  /// Origins that have a connection: an origin without one is forgotten, so a census of passers-by does not grow.
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
  mutating func leave(_ origin: ClientOrigin) {
    guard let others = countByOrigin[origin] else { preconditionFailure("a connection left that never came") }
    count -= 1
    countByOrigin[origin] = others > 1 ? others - 1 : nil
  }
}
