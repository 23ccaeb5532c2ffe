/// Which namespaces of a Socket.IO session have missed pushes that no gap reports.
///
/// The end of a connection is a gap by itself. This is for a namespace that ends, is refused or does not answer while the others go on: its
/// pushes are missing from then on, until a connection joins it again.
package struct NamespaceContinuity: Sendable {
  /// Those that have been joined. Readers cannot have missed pushes of the others.
  private var known: Set<String>
  private var interrupted: Set<String> = []

  /// `known`: the namespaces that an earlier process had joined.
  package init(known: some Sequence<String>) { self.known = Set(known) }

  /// The connection that sends is not joined to the namespace.
  package mutating func interrupt(_ namespace: String) {
    if known.contains(namespace) { interrupted.insert(namespace) }
  }

  /// A connection has joined the namespace. `isRecovered`: the server has sent what was missing. Returns whether pushes are missing.
  package mutating func join(_ namespace: String, isRecovered: Bool) -> Bool {
    known.insert(namespace)
    return interrupted.remove(namespace) != nil && !isRecovered
  }
}
