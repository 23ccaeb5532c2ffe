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

  package init(_ sessions: [Session]) {
    all = sessions
    self.default = sessions.first { $0.name == Session.defaultName }
    named = sessions.map { (Array($0.name.utf8), $0) }
  }

  /// Returns the session with this name, or nil.
  package func find(_ name: Span<UInt8>) -> Session? {
    named.first { name.equals($0.name.span) }?.session
  }

  package func find(_ name: String) -> Session? { all.first { $0.name == name } }

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
  package func shutDown(flushWithin limit: TimeSpan) {
    for session in all { session.shutDown(flushWithin: limit) }
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
