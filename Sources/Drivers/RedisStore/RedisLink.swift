import ByteStreams
import Dialing
import RESPCodec
import Reactor
import Redis
import RedisProtocol
import Replication

/// Receives what a `RedisLink` reports, on its loop.
protocol RedisLinkOwner: AnyObject {
  /// All connections are ready, and lead to one server.
  func linkIsUp(history: String, at address: RedisAddress)
  /// Nothing that was sent will be answered.
  func linkIsDown(_ failure: RedisFailure)
  /// Another attempt failed while the link is down.
  ///
  /// - Parameter address: of the server or Sentinel that failed; nil: the failure is not that of one.
  func linkAttemptFailed(_ failure: RedisFailure, at address: RedisAddress?)
  func link(reports event: RedisSubscriptions.Event)
}

/// The connections of a store to Redis: for heartbeats, for the journals, and for notifications. They begin and end together, so that what one of
/// them has seen was seen of the same server by all.
final class RedisLink {
  /// Between the end of a connection and the next attempt. The connector waits longer if attempts fail.
  private static var pause: TimeSpan { .milliseconds(100) }
  /// Maximum bytes of a reply. A part of a stream is at most one entry larger than what was asked for, and an entry has at most one write.
  private static var replyBytes: Int { 256 << 20 }

  private let loop: LoopContext
  unowned let owner: any RedisLinkOwner
  private(set) var isUp = false
  private var slots: [Slot] = []
  private var timer: LoopTimer?
  private var isClosed = false
  /// nil without Sentinels.
  private var watch: SentinelWatch?

  var heartbeats: RedisConnection? { isUp ? slots[0].connection : nil }
  var journals: RedisConnection? { isUp ? slots[1].connection : nil }
  var notifications: RedisConnection? { isUp ? slots[2].connection : nil }

  init(_ settings: RedisStoreSettings, dialer: any Dialer, loop: LoopContext, owner: any RedisLinkOwner) {
    self.loop = loop
    self.owner = owner
    for index in 0..<RedisStore.connections {
      var connection = RedisConnectionSettings()
      if index == 2 { connection.purpose = .subscriptions([]) } else { connection.scripts = StoreScript.all }
      connection.limits.replyBytes = Self.replyBytes
      slots.append(
        Slot(self, RedisConnector(to: settings.target, connection, dialer: dialer, loop: loop)))
    }
    if case .sentinels(let sentinels, let name, _) = settings.target {
      watch = SentinelWatch(sentinels, of: name, dialer: dialer, loop: loop) { [unowned self] in
        primaryHasMoved(to: $1, says: $0)
      }
    }
  }

  func start() {
    watch?.start()
    connect()
  }

  private func connect() { for slot in slots { slot.connector.connect(for: slot) } }

  /// Before the old primary ends the connections, it may accept writes for seconds, which are then lost.
  private func primaryHasMoved(to address: RedisAddress, says sentinel: Int) {
    guard !slots.allSatisfy({ $0.connection?.endpoint.address == address }) else { return }
    reset(.disconnected("a Sentinel says that the primary is \(address) now"))
    // The attempts begin after a pause.
    for slot in slots { slot.connector.prefer(sentinel) }
  }

  func close() {
    isClosed = true
    watch?.stop()
    endConnections()
  }

  /// Ends all connections, and opens others.
  func reset(_ failure: RedisFailure) {
    let wasUp = isUp
    endConnections()
    guard !isClosed else { return }
    timer = loop.schedule(at: loop.now + Self.pause, self)
    if wasUp { owner.linkIsDown(failure) } else { owner.linkAttemptFailed(failure, at: nil) }
  }

  private func endConnections() {
    isUp = false
    if let timer { loop.cancel(timer) }
    timer = nil
    for slot in slots {
      slot.connector.cancel()
      let connection = slot.connection
      slot.connection = nil
      connection?.close()
    }
  }

  fileprivate func slotIsReady() {
    let histories = slots.compactMap { $0.connection?.information?.replicationID }
    guard histories.count == slots.count, let address = slots[0].connection?.endpoint.address else { return }
    guard Set(histories).count == 1 else {
      return reset(.disconnected("the connections lead to different servers"))
    }
    isUp = true
    owner.linkIsUp(history: histories[0], at: address)
  }

  private final class Slot: RedisConnectorOwner {
    unowned let link: RedisLink
    let connector: RedisConnector
    var connection: RedisConnection?

    init(_ link: RedisLink, _ connector: RedisConnector) {
      self.link = link
      self.connector = connector
    }

    func connection(_ connection: RedisConnection, reports event: RedisConnection.Event) {
      switch event {
      case .ready:
        self.connection = connection
        link.slotIsReady()
      case .subscription(let event): if connection === self.connection { link.owner.link(reports: event) }
      case .ended(let failure): if connection === self.connection { link.reset(failure) }
      }
    }

    func connector(_ connector: RedisConnector, failedToReach address: RedisAddress, _ failure: RedisFailure) {
      link.owner.linkAttemptFailed(failure, at: address)
    }
  }
}

extension RedisLink: TimerTarget {
  func timerFired(_ token: Int) {
    timer = nil
    if !isClosed { connect() }
  }
}
