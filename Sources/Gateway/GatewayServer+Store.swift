import ByteStreams
import Configuration
import Host
import Inbox
import Journal
import Logging
import Metrics
import Outbox
import Reactor
import Sessions
import Store
import Upstream
import UpstreamProtocol
import UpstreamSession

extension GatewaySettings {
  /// The longest timeout of a closing handshake.
  var longestClosing: TimeSpan {
    let configurations = configuredSessions.map(\.configuration) + profiles.map(\.configuration)
    return configurations.map(\.upstream.session.limits.closing).max() ?? .zero
  }
}

/// The store of the process.
extension GatewayServer {
  /// How long the store may take at the end to write and close. Acknowledged changes are already stored.
  static var storeClosing: TimeSpan { .seconds(10) }

  /// Opens the file of the store. Returns nil unless sessions are stored in a file.
  ///
  /// - Parameter isSuccessor: whether the process has inherited the sockets of another process, which may have the file
  ///   open until its shutdown ends.
  static func openStore(
    _ settings: GatewaySettings, isSuccessor: Bool, logger: Logger, metrics: MetricsRegistry
  ) throws(StartError) -> Store? {
    guard settings.store.engine == .sqlite else { return nil }
    let limits = settings.shutdown
    // The longest duration of the predecessor's shutdown.
    let wait =
      isSuccessor
      ? limits.pause + limits.drain + limits.flush + settings.longestClosing + lastResponses + storeClosing : .zero
    do throws(StoreError) {
      // The main thread handles signals only after the start, so this wait must check for pending signals itself.
      return try Store.open(
        settings.store, for: settings.configuredSessions.map(\.name), waiting: wait,
        unless: { ProcessSignals.isPending(shutdownSignals) }, logger: logger,
        metrics: metrics)
    } catch {
      throw StartError(message: error.description, concernsConfiguration: error.concernsFile)
    }
  }

  /// The reason for which `openStore` would fail at present, as far as the names and permissions of the files show it;
  /// nil if they show no reason. Changes nothing.
  package static func storeFailure(_ settings: GatewaySettings) -> String? {
    guard settings.store.engine == .sqlite else { return nil }
    do throws(StoreError) {
      try Store.checkStart(settings.store)
      return nil
    } catch {
      return error.description
    }
  }

  /// Begins the term of each session. Returns the stored sessions.
  static func restore(_ sessions: [SessionPlan], from store: Store, _ logger: Logger) -> [String: OpenedJournal] {
    let journals = store.open(sessions.map(\.name))
    var pushes = 0
    var messages = 0
    for opened in journals.values {
      pushes += opened.restored.log.pushes.count
      messages += opened.restored.outbox.messages.count
    }
    logger.info(
      "sessions restored",
      [.number("sessions", journals.count), .number("pushes", pushes), .number("messages", messages)])
    return journals
  }

  /// Stores the submitted changes, and closes the file. Called when no session submits any more. Returns whether
  /// everything is stored.
  func closeStore() -> Bool {
    guard let store else { return true }
    guard store.close(within: Self.storeClosing) else {
      logger.error("the store was not closed in time", [.text("path", settings.store.path)])
      return false
    }
    guard let failure = store.state.failure else { return true }
    logger.error(
      "the store has failed: changes that were not stored are lost",
      [.text("path", settings.store.path), .text("reason", failure)])
    return false
  }
}
