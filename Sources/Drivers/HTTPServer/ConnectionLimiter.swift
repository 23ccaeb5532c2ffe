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

  /// Counts an admitted connection from `old` by `new` instead, if the limit of `new` is not reached.
  mutating func move(_ old: ClientOrigin, to new: ClientOrigin) -> Bool {
    if old == new { return true }
    guard countByOrigin[new, default: 0] < limitPerOrigin || new == .local else { return false }
    release(old)
    count += 1
    countByOrigin[new, default: 0] += 1
    return true
  }

  /// Records that an admitted connection has ended.
  mutating func release(_ origin: ClientOrigin) {
    guard let others = countByOrigin[origin] else { preconditionFailure("no connection of this origin was admitted") }
    count -= 1
    countByOrigin[origin] = others > 1 ? others - 1 : nil
  }
}
