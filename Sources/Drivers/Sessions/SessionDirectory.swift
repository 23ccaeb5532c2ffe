import ByteStreams
import Reactor
import RouteNetlink
import Upstream

/// The sessions of the process, by name.
package struct SessionDirectory: Sendable {
  /// In the order of the configuration, the default session first.
  package let all: [Session]
  /// nil where the configuration describes named sessions only.
  package let `default`: Session?
  /// `all`, with the bytes of each name.
  private let named: [(name: [UInt8], session: Session)]

  package init(_ sessions: [Session]) {
    all = sessions
    self.default = sessions.first { $0.name == Session.defaultName }
    named = sessions.map { (Array($0.name.utf8), $0) }
  }

  /// The session with this name; nil where there is none.
  package func find(_ name: Span<UInt8>) -> Session? {
    named.first { name.equals($0.name.span) }?.session
  }

  package func find(_ name: String) -> Session? { all.first { $0.name == name } }

  // MARK: The life of all sessions

  /// Starts each session on a loop of its own, as far as there are loops: with more sessions than loops they take turns.
  package func start(on loops: [EventLoop]) {
    let resolver = Resolver()
    for (index, session) in all.enumerated() { session.start(on: loops[index % loops.count], resolver: resolver) }
  }

  /// Links, addresses or routes of this machine have changed.
  package func networkChanged(_ change: NetworkChange) {
    for session in all { session.upstream.networkChanged(change) }
  }

  /// Ends every session: queued messages get `limit` to be sent, then the connection is closed with 1001. `haveEnded` reports when it
  /// is over.
  package func shutDown(flushWithin limit: TimeSpan) {
    for session in all { session.shutDown(flushWithin: limit) }
  }

  package var haveEnded: Bool { all.allSatisfy { $0.upstream.hasEnded } }

  /// From now on every message is refused.
  package func refuseMessages() {
    for session in all { session.upstream.refuseMessages() }
  }

  /// The loops are gone: every message that has not reached a final state reaches one now.
  package func abandon() {
    for session in all { session.upstream.abandon() }
  }
}
