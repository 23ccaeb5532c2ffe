import ByteStreams
import Reactor
import RouteNetlink
import Upstream

/// The sessions of the process, by name. Immutable.
package struct SessionDirectory: Sendable {
  /// In the order of the configuration, the default session first.
  package let all: [Session]
  /// nil if the configuration has named sessions only.
  package let `default`: Session?
  /// `all`, with the bytes of each name.
  private let named: [(name: [UInt8], session: Session)]
  /// Positions in `named` by the hash of the name; -1 is an empty slot. Linear probing, at most half full, a power of two in size.
  private let slots: [Int32]

  package init(_ sessions: [Session]) {
    all = sessions
    self.default = sessions.first { $0.name == Session.defaultName }
    named = sessions.map { (Array($0.name.utf8), $0) }
    var size = 2
    while size < 2 * sessions.count { size *= 2 }
    let mask = size - 1
    var slots = [Int32](repeating: -1, count: size)
    for position in named.indices {
      let name = named[position].name
      var slot = Self.hash(of: name.span) & mask
      while slots[slot] >= 0 { slot = (slot + 1) & mask }
      slots[slot] = Int32(position)
    }
    self.slots = slots
  }

  /// Returns the session with this name, or nil. On the path of every request to a named session.
  package func find(_ name: Span<UInt8>) -> Session? {
    let mask = slots.count - 1
    var slot = Self.hash(of: name) & mask
    while true {
      let position = slots[slot]
      guard position >= 0 else { return nil }
      let entry = named[Int(position)]
      if name.equals(entry.name.span) { return entry.session }
      slot = (slot + 1) & mask
    }
  }

  package func find(_ name: String) -> Session? {
    let name = Array(name.utf8)
    return find(name.span)
  }

  /// FNV-1a, without a secret. A client can choose where its look-up begins, but not the names in the table, which are the operator's. A
  /// look-up ends at the first empty slot.
  private static func hash(of name: Span<UInt8>) -> Int {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for index in name.indices { hash = (hash ^ UInt64(name[index])) &* 0x100_0000_01b3 }
    return Int(truncatingIfNeeded: hash)
  }

  // MARK: Life cycle

  /// Starts the sessions, distributed over the loops in turn.
  package func start(on loops: [EventLoop]) {
    let resolver = Resolver()
    for (index, session) in all.enumerated() { session.start(on: loops[index % loops.count], resolver: resolver) }
  }

  /// Reports a change of links, addresses or routes of this machine.
  package func networkChanged(_ change: NetworkChange) {
    for session in all { session.upstream.networkChanged(change) }
  }

  /// Shuts every session down: sends queued messages for up to `limit`, then closes the connection with 1001. `haveEnded` becomes
  /// true at the end.
  ///
  /// - Parameter end: called each time that a session has ended, on its loop.
  package func shutDown(flushWithin limit: TimeSpan, whenEnded end: @escaping @Sendable () -> Void) {
    for session in all { session.shutDown(flushWithin: limit, whenEnded: end) }
  }

  package var haveEnded: Bool { all.allSatisfy { $0.upstream.hasEnded } }

  /// Refuses every message from now on.
  package func refuseMessages() {
    for session in all { session.upstream.refuseMessages() }
  }

  /// Gives every message without a final state one. Called after the loops have ended.
  package func abandon() {
    for session in all { session.upstream.abandon() }
  }
}
