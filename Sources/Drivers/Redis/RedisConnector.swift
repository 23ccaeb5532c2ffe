import ByteStreams
import Dialing
import Reactor
import RedisProtocol

/// Opens a connection to a primary, and retries until it succeeds. It looks up the address again before each attempt,
/// and pauses briefly after each round of attempts.
///
/// The event `.ready` reports the connection, which belongs to the owner from then on. When it has ended, `connect`
/// opens another connection: at once, or after a wait if it was ready only for a moment. Used on one event loop only.
package final class RedisConnector {
  package enum Target: Sendable {
    case server(RedisEndpoint)
    /// The primary that these Sentinels call `name`. `primary`: the settings of the connections to this primary, except
    /// the address, which the Sentinels report.
    case sentinels([RedisEndpoint], name: String, primary: RedisEndpoint)
  }

  /// An attempt failed at this server or Sentinel. The connector continues with the next attempt.
  package typealias Report = (_ address: RedisAddress, _ failure: RedisFailure) -> Void

  private let target: Target
  private let settings: RedisConnectionSettings
  private let dialer: any Dialer
  private let loop: LoopContext
  private let report: Report
  /// Receives the events of the connection; nil while no connection is requested.
  private var owner: (any RedisConnectionOwner)?
  private var search: PrimarySearch
  private var query: SentinelQuery?
  /// The connection that is not ready yet.
  private var connection: RedisConnection?
  private var timer: LoopTimer?

  /// - Parameters:
  ///   - target: a list of Sentinels must not be empty.
  ///   - report: called after each attempt that failed.
  package init(
    to target: Target, _ settings: RedisConnectionSettings, dialer: any Dialer, loop: LoopContext,
    report: @escaping Report
  ) {
    self.report = report
    self.target = target
    self.settings = settings
    self.dialer = dialer
    self.loop = loop
    switch target {
    case .server: search = PrimarySearch(sentinels: 1)
    case .sentinels(let sentinels, _, _): search = PrimarySearch(sentinels: sentinels.count)
    }
  }

  /// Makes attempts until a connection is ready or `cancel` is called. Must not be called again before one of these
  /// happens.
  package func connect(for owner: any RedisConnectionOwner) {
    precondition(self.owner == nil, "a connection is being opened already")
    self.owner = owner
    search.begin(now: loop.now)
    takeStep()
  }

  /// Ends the attempts. A connection that is ready is not affected.
  package func cancel() {
    owner = nil
    if let timer { loop.cancel(timer) }
    timer = nil
    query?.cancel()
    query = nil
    connection?.close()
    connection = nil
  }

  /// The search begins with this Sentinel. Must not be called during an attempt.
  package func prefer(_ sentinel: Int) { search.prefer(sentinel) }

  private func takeStep() {
    switch search.nextStep(using: &loop.entropy) {
    case .wait(let time): timer = loop.schedule(at: loop.now + time, self)
    case .ask(let index):
      switch target {
      case .server(let endpoint): open(endpoint)
      case .sentinels(let sentinels, let name, let primary): ask(sentinels[index], for: name, primary)
      }
    }
  }

  private func ask(_ sentinel: RedisEndpoint, for name: String, _ primary: RedisEndpoint) {
    let query = SentinelQuery(name) { [self] result in
      self.query = nil
      switch result {
      case .success(let address):
        if search.shouldTry(address) { open(primary.at(address)) } else { takeStep() }
      case .failure(let failure): attemptFailed(at: sentinel.address, failure)
      }
    }
    self.query = query
    query.start(at: sentinel, dialer: dialer, loop: loop)
  }

  private func open(_ endpoint: RedisEndpoint) {
    let connection = RedisConnection(to: endpoint, settings, dialer: dialer, loop: loop, owner: self)
    self.connection = connection
    connection.start()
  }

  private func attemptFailed(at address: RedisAddress, _ failure: RedisFailure) {
    report(address, failure)
    // The owner may have cancelled.
    if owner != nil { takeStep() }
  }
}

extension RedisConnector: RedisConnectionOwner {
  package func connection(_ connection: RedisConnection, reports event: RedisConnection.Event) {
    guard connection === self.connection, let owner else { return }
    switch event {
    case .subscription: owner.connection(connection, reports: event)
    case .ready:
      search.noteSuccess(now: loop.now)
      self.connection = nil
      self.owner = nil
      connection.handOver(to: owner)
      owner.connection(connection, reports: event)
    case .ended(let failure):
      self.connection = nil
      search.noteFailure(of: connection.endpoint.address)
      attemptFailed(at: connection.endpoint.address, failure)
    }
  }
}

extension RedisConnector: TimerTarget {
  package func timerFired(_ token: Int) {
    // The timer may have been cancelled in the same turn.
    guard timer != nil else { return }
    timer = nil
    takeStep()
  }
}
