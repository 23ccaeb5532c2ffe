import ByteStreams
import Dialing
import RESPCodec
import Reactor
import Redis
import RedisProtocol
import Replication

/// A log in Redis, with three connections: for heartbeats, for journals and for notifications. They are opened and
/// closed together, so that all lead to the same server.
final class RedisLog: SharedLog {
  /// Pause between the end of a connection and the next attempt. The connector waits longer if attempts fail.
  private static var pause: TimeSpan { .milliseconds(100) }
  /// Maximum bytes of a reply. A part of a stream exceeds the requested size by at most one entry, and an entry
  /// contains at most one write.
  private static var replyBytes: Int { 256 << 20 }

  private let loop: LoopContext
  let keys: RedisKeys
  private let replicas: Int
  private let metrics: RedisStoreMetrics
  private unowned let owner: any SharedLogOwner
  private(set) var isUp = false
  private var slots: [Slot] = []
  private var timer: LoopTimer?
  private var isClosed = false
  /// nil without Sentinels.
  private var watch: SentinelWatch?

  private var notifications: RedisConnection? { isUp ? slots[2].connection : nil }

  init(
    _ settings: RedisStoreSettings, dialer: any Dialer, metrics: RedisStoreMetrics, loop: LoopContext,
    owner: any SharedLogOwner
  ) {
    self.loop = loop
    self.metrics = metrics
    keys = RedisKeys(prefix: settings.prefix)
    replicas = settings.waitReplicas
    self.owner = owner
    for index in 0..<RedisStore.connections {
      var connection = RedisConnectionSettings()
      if index == 2 { connection.purpose = .subscriptions([]) } else { connection.scripts = StoreScript.all }
      connection.limits.replyBytes = Self.replyBytes
      let connector = RedisConnector(to: settings.target, connection, dialer: dialer, loop: loop) { [unowned owner] in
        owner.logAttemptFailed(LogFailure($1), at: "\($0)")
      }
      slots.append(Slot(self, connector))
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

  /// Reconnects at once. The old primary may accept writes for seconds before it closes the connections, and these
  /// writes would be lost.
  private func primaryHasMoved(to address: RedisAddress, says sentinel: Int) {
    guard !slots.allSatisfy({ $0.connection?.endpoint.address == address }) else { return }
    reset(.disconnected("a Sentinel says that the primary is \(address) now"))
    // The attempts begin after the pause, so all of them use the preferred Sentinel.
    for slot in slots { slot.connector.prefer(sentinel) }
  }

  func close() {
    isClosed = true
    watch?.stop()
    endConnections()
  }

  func reset(_ reason: String) { reset(.disconnected(reason)) }

  /// Closes all connections, and opens new connections after a pause.
  private func reset(_ failure: RedisFailure) {
    let wasUp = isUp
    endConnections()
    guard !isClosed else { return }
    timer = loop.schedule(at: loop.now + Self.pause, self)
    if wasUp { owner.logIsDown(LogFailure(failure)) } else { owner.logAttemptFailed(LogFailure(failure), at: nil) }
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
    owner.logIsUp(history: histories[0], at: "\(address)")
  }

  // MARK: Commands

  func send(_ commands: [LogCommand], on lane: LogLane, then: @escaping (LogLanding) -> Void) -> Bool {
    guard isUp, let connection = slots[lane.rawValue].connection else { return false }
    let flight = RedisFlight(of: commands.count, over: connection, metrics: metrics, then: then)
    var reads = false
    for (index, command) in commands.enumerated() {
      if case .read = command { reads = true }
      if let prelude = prelude(of: command) { flight.send(prelude) }
      let (script, parts) = encode(command)
      flight.send(index, command, script, parts)
    }
    if replicas > 0 {
      if reads { flight.write(to: keys.nobody) }
      flight.wait(for: replicas)
    }
    return !flight.hasFailed
  }

  func subscribe(to subjects: [LogSubject]) { _ = notifications?.subscribe(subjects.map { keys.channel(of: $0) }) }

  func unsubscribe(from subjects: [LogSubject]) {
    _ = notifications?.unsubscribe(subjects.map { keys.channel(of: $0) })
  }

  private func report(_ event: RedisSubscriptions.Event) {
    switch event {
    case .unsubscribed: break
    case .subscribed(let channel): if let subject = keys.subject(of: channel) { owner.logSubscribed(to: subject) }
    case .message(let channel, let message):
      if let subject = keys.subject(of: channel) { owner.logNotified(subject, message) }
    }
  }

  private final class Slot: RedisConnectionOwner {
    unowned let log: RedisLog
    let connector: RedisConnector
    var connection: RedisConnection?

    init(_ log: RedisLog, _ connector: RedisConnector) {
      self.log = log
      self.connector = connector
    }

    func connection(_ connection: RedisConnection, reports event: RedisConnection.Event) {
      switch event {
      case .ready:
        self.connection = connection
        log.slotIsReady()
      case .subscription(let event): if connection === self.connection { log.report(event) }
      case .ended(let failure): if connection === self.connection { log.reset(failure) }
      }
    }
  }
}

extension LogFailure {
  fileprivate init(_ failure: RedisFailure) {
    self.init("\(failure)", isAboutCredentials: failure.isAboutCredentials)
  }
}

extension RedisLog: TimerTarget {
  func timerFired(_ token: Int) {
    timer = nil
    if !isClosed { connect() }
  }
}
