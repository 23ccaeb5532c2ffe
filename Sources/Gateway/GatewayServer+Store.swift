import ByteStreams
import Configuration
import Journal
import Logging
import Metrics
import Reactor
import Store

/// The store of the process.
extension GatewayServer {
  /// How long the store may take to store and close at the end. What was acknowledged is stored before.
  private static var storeClosing: TimeSpan { .seconds(10) }

  /// Opens the store; nil if sessions are kept in memory only.
  ///
  /// - Parameter isSuccessor: the process takes over the sockets of another, which may still have the file open until its shutdown ends.
  static func openStore(
    _ settings: GatewaySettings, isSuccessor: Bool, logger: Logger, metrics: MetricsRegistry
  ) throws(StartError) -> Store? {
    guard settings.store.engine == .sqlite else { return nil }
    let limits = settings.shutdown
    let wait = isSuccessor ? limits.pause + limits.drain + limits.flush + storeClosing : .zero
    logger.warning("sessions do not use the store yet: pushes and messages are kept in memory", [])
    do throws(StoreError) {
      // The main thread accepts signals when the start is complete.
      return try Store.open(
        settings.store, waiting: wait, unless: { ProcessSignals.isPending(shutdownSignals) }, logger: logger,
        metrics: metrics)
    } catch {
      throw StartError(message: error.description, concernsConfiguration: error.concernsFile)
    }
  }

  /// Stores what was submitted, and closes the file. Called when no session submits anything any more.
  func closeStore() {
    guard let store, !store.close(within: Self.storeClosing) else { return }
    logger.error("the store was not closed in time", [.text("path", settings.store.path)])
  }
}
