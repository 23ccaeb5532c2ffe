import TLSEngine
import Threading

/// The certificate of the HTTPS listeners. New connections use the current certificate. Existing connections keep the
/// certificate with which they began.
package final class CurrentCertificate: Sendable {
  private let context: Locked<TLSServerContext>

  package init(_ context: TLSServerContext) { self.context = Locked(context) }

  package var current: TLSServerContext { context.withLock { $0 } }

  /// Sets the certificate for new connections.
  package func replace(with new: TLSServerContext) { context.withLock { $0 = new } }
}
