import TLSEngine
import Threading

/// The certificate of the HTTPS listeners. New connections use the current one, and others keep the one with which they began.
package final class CurrentCertificate: Sendable {
  private let context: Locked<TLSServerContext>

  package init(_ context: TLSServerContext) { self.context = Locked(context) }

  package var current: TLSServerContext { context.withLock { $0 } }

  /// Uses another certificate for the connections that begin from now on.
  package func replace(with new: TLSServerContext) { context.withLock { $0 = new } }
}
