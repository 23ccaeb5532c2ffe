/// Decides where pushes of a session may be missing: between two connections, and in one namespace while the others go on.
///
/// The end of the connection that sends is a loss, unless the upstream restores its state on the next connection. Then the loss is delayed: it counts
/// when the upstream says that it restores nothing. A connection is known by its number; later ones have larger numbers.
///
/// A function that returns a Boolean returns whether pushes may be missing from here on. The owner reports that after the pushes that have arrived.
package struct PushContinuity: Sendable {
  private var isLossDelayed: Bool
  /// The gateway closes the connection that sends, which brings pushes until it has ended.
  private var isClosing = false
  /// The connection that has sent last. `isComplete`: no push is missing if the upstream restores its state.
  private var saved: (connection: UInt64, isComplete: Bool)?
  /// Those whose setup has begun, and that have not sent yet.
  private var successors: [Successor] = []
  /// Namespaces that were joined. Nobody can have missed pushes of the others.
  private var known: Set<String>
  /// Namespaces that the connection is not joined to. Their pushes are missing until a connection joins them again.
  private var interrupted: Set<String> = []

  /// - Parameters:
  ///   - mayBeContinued: whether the upstream may restore the state of the last connection, which an earlier process had.
  ///   - namespaces: those that it had joined.
  package init(mayBeContinued: Bool, namespaces: some Sequence<String>) {
    isLossDelayed = mayBeContinued
    known = Set(namespaces)
  }

  private struct Successor: Sendable {
    let connection: UInt64
    var hasBroughtPushes = false
  }

  // MARK: Connections

  /// Setting up a connection has begun: what it asks the upstream to restore is decided.
  package mutating func setupBegan(on connection: UInt64) { successors.append(Successor(connection: connection)) }

  package func isSettingUp(_ connection: UInt64) -> Bool { successors.contains { $0.connection == connection } }

  /// A push was passed on. Does nothing for a connection that has sent.
  @inline(__always)
  package mutating func pushReceived(on connection: UInt64) {
    if !successors.isEmpty { noteFirstPush(on: connection) }
  }

  private mutating func noteFirstPush(on connection: UInt64) {
    guard let index = successors.firstIndex(where: { $0.connection == connection }) else { return }
    successors[index].hasBroughtPushes = true
  }

  /// Whether the connection has not sent yet, and pushes of it were passed on.
  package func hasBroughtPushesEarly(_ connection: UInt64) -> Bool {
    successors.contains { $0.connection == connection && $0.hasBroughtPushes }
  }

  /// A connection sends from now on. `missing`: the namespaces that it is not joined to. An optional one may respond later, or be joined by a later
  /// connection.
  package mutating func sendingBegan(on connection: UInt64, without missing: some Sequence<String>) {
    ended(connection)
    for namespace in missing { interrupt(namespace) }
    isLossDelayed = false
    saved = nil
  }

  /// The state of a connection that stops sending was saved for the next one.
  package mutating func stateSaved(of connection: UInt64, isComplete: Bool) { saved = (connection, isComplete) }

  package func hasSavedState(of connection: UInt64) -> Bool { saved?.connection == connection }

  /// The session has changed its state.
  ///
  /// - Parameters:
  ///   - didSend: whether a connection could send before, and `sends`: whether one can now.
  ///   - closes: whether its closing handshake begins, and `wasClosing`: whether it was in progress.
  ///   - upstreamHasEnded: whether the upstream has sent everything that it sends: nothing follows its close frame (RFC 6455, section 5.5.1).
  package mutating func changed(
    didSend: Bool, sends: Bool, wasClosing: Bool, closes: Bool, upstreamHasEnded: Bool
  ) -> Bool {
    if didSend, closes, !upstreamHasEnded {
      isClosing = true
      return false
    }
    guard didSend && !sends || wasClosing && isClosing else { return false }
    isClosing = false
    return connectionLost()
  }

  /// A connection has ended that never became ready, and had brought pushes or joined namespaces. What it has brought was passed on, and no other
  /// connection sends.
  package mutating func setupFailed(on connection: UInt64) -> Bool {
    ended(connection)
    return connectionLost()
  }

  package mutating func ended(_ connection: UInt64) { successors.removeAll { $0.connection == connection } }

  private mutating func connectionLost() -> Bool {
    // A successor that is already being set up has asked for nothing: its predecessor was alive.
    isLossDelayed = saved?.isComplete == true && successors.isEmpty
    return !isLossDelayed
  }

  /// The upstream has not restored the state of the last connection.
  package mutating func stateLost() -> Bool {
    defer { isLossDelayed = false }
    return isLossDelayed
  }

  // MARK: Namespaces

  /// The connection that sends is not joined to the namespace any more, and no successor is.
  package mutating func interrupt(_ namespace: String) {
    if known.contains(namespace) { interrupted.insert(namespace) }
  }

  /// A connection has joined the namespace. `isRecovered`: the server has sent what was missing.
  package mutating func join(_ namespace: String, isRecovered: Bool) -> Bool {
    known.insert(namespace)
    let isMissing = interrupted.remove(namespace) != nil && !isRecovered
    if isMissing { isLossDelayed = false }
    return isMissing
  }
}
