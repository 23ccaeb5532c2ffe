/// Decides where pushes of a session may be missing: between two connections, or in one namespace while the other
/// namespaces continue. The *sending* connection is the connection that sends the messages of clients.
///
/// When the sending connection ends, pushes are lost, unless the upstream restores the state of that connection on the
/// next connection. Until this is known, the loss is *delayed*, which means that it is not reported. It is reported as
/// soon as the upstream says that it has not restored the state. Connections are identified by numbers, which increase.
///
/// A function that returns a Boolean returns whether pushes may be missing from this point on. The owner reports the
/// gap after the pushes that have arrived.
package struct PushContinuity: Sendable {
  private var isLossDelayed: Bool
  /// Whether the gateway is closing the sending connection, which delivers pushes until it has ended.
  private var isClosing = false
  /// The connection whose state was saved when it stopped sending. `isComplete`: no push is missing if the upstream
  /// restores this state.
  private var saved: (connection: UInt64, isComplete: Bool)?
  /// Whether a successor has delivered pushes before the upstream has said whether it restores the state. These pushes
  /// have moved the cursor of the session. If the successor fails, pushes before the cursor may be missing, so no saved
  /// state is complete until the next connection begins to send.
  package private(set) var isCursorUncertain = false
  /// The connections whose setup has begun and that do not send yet.
  private var successors: [Successor] = []
  /// The namespaces that were joined. Pushes of other namespaces cannot be missing.
  private var known: Set<String>
  /// The known namespaces that the sending connection is not joined to. Their pushes are missing until a connection
  /// joins them again.
  private var interrupted: Set<String> = []

  /// - Parameters:
  ///   - mayBeContinued: whether the upstream may restore the state of the last connection of an earlier process.
  ///   - namespaces: the namespaces that this connection had joined.
  package init(mayBeContinued: Bool, namespaces: some Sequence<String>) {
    isLossDelayed = mayBeContinued
    known = Set(namespaces)
  }

  private struct Successor: Sendable {
    let connection: UInt64
    var hasBroughtPushes = false
  }

  // MARK: Connections

  /// Called when the setup of a connection has begun. From this moment on, the state that the upstream is to restore on
  /// this connection no longer changes.
  package mutating func setupBegan(on connection: UInt64) { successors.append(Successor(connection: connection)) }

  package func isSettingUp(_ connection: UInt64) -> Bool { successors.contains { $0.connection == connection } }

  /// Called before a push is passed on. Returns whether the push is the first of a connection that does not send yet.
  @inline(__always)
  package mutating func pushReceived(on connection: UInt64) -> Bool {
    successors.isEmpty ? false : noteFirstPush(on: connection)
  }

  private mutating func noteFirstPush(on connection: UInt64) -> Bool {
    guard let index = successors.firstIndex(where: { $0.connection == connection && !$0.hasBroughtPushes }) else {
      return false
    }
    successors[index].hasBroughtPushes = true
    isCursorUncertain = true
    return true
  }

  /// Whether pushes of the connection were passed on although it does not send yet.
  package func hasBroughtPushesEarly(_ connection: UInt64) -> Bool {
    successors.contains { $0.connection == connection && $0.hasBroughtPushes }
  }

  /// Called when a connection begins to send. `missing`: the namespaces that it is not joined to. An optional namespace
  /// may respond later, or a later connection may join it.
  package mutating func sendingBegan(on connection: UInt64, without missing: some Sequence<String>) {
    ended(connection)
    for namespace in missing { interrupt(namespace) }
    isLossDelayed = false
    saved = nil
    isCursorUncertain = successors.contains(where: \.hasBroughtPushes)
  }

  /// Called when the state of a connection that stops sending was saved for the next connection.
  package mutating func stateSaved(of connection: UInt64, isComplete: Bool) {
    saved = (connection, isComplete && !isCursorUncertain)
  }

  package func hasSavedState(of connection: UInt64) -> Bool { saved?.connection == connection }

  /// Called when the session has changed its state. The parameters describe the sending connection.
  ///
  /// - Parameters:
  ///   - didSend: whether a connection could send before the change.
  ///   - sends: whether a connection can send now.
  ///   - wasClosing: whether the closing handshake was in progress.
  ///   - closes: whether the closing handshake begins.
  ///   - upstreamHasEnded: whether the upstream will send nothing more. Nothing follows its close frame (RFC 6455,
  ///     section 5.5.1).
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

  /// Called when a connection has ended during its setup, after it had joined namespaces or delivered pushes, which
  /// were passed on. Must not be called while another connection sends.
  package mutating func setupFailed(on connection: UInt64) -> Bool {
    ended(connection)
    return connectionLost()
  }

  package mutating func ended(_ connection: UInt64) { successors.removeAll { $0.connection == connection } }

  private mutating func connectionLost() -> Bool {
    // A successor that is already being set up has not requested the state, since its predecessor was still alive when
    // the setup began.
    isLossDelayed = saved?.isComplete == true && successors.isEmpty
    return !isLossDelayed
  }

  /// Called when the upstream has not restored the state of the last connection.
  package mutating func stateLost() -> Bool {
    defer { isLossDelayed = false }
    return isLossDelayed
  }

  // MARK: Namespaces

  /// Called when the sending connection has left the namespace, and no successor has joined it.
  package mutating func interrupt(_ namespace: String) {
    if known.contains(namespace) { interrupted.insert(namespace) }
  }

  /// Called when a connection has joined the namespace. `isRecovered`: the server has sent the missing pushes.
  package mutating func join(_ namespace: String, isRecovered: Bool) -> Bool {
    known.insert(namespace)
    let isMissing = interrupted.remove(namespace) != nil && !isRecovered
    if isMissing { isLossDelayed = false }
    return isMissing
  }
}
