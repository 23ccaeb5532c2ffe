import ByteStreams
import Inbox
import TestSupport

@testable import Replication

/// A gateway: a driver of the machines, one session with its upstream, and readers.
final class SimulatedGateway {
  unowned let world: ReplicationWorld
  let id: GatewayID
  let rate: Double
  let offset: Double
  let times: TenureTimes
  var bug: PlantedBug? { world.bug }

  var isDead = false
  var returnTime = 0
  var frozenUntil = 0
  var partitionedUntil = 0
  /// When the gateway notices that another server is the primary.
  var noticeTime = 0
  /// When the gateway ends; nil if it does not drain.
  private var endTime: Int?
  var isDraining: Bool { endTime != nil }
  /// Whether it drains, and may no longer connect the session.
  private(set) var isSilent = false

  var connection: RedisConnection?
  var heartbeat: Heartbeat
  var watch: HistoryWatch
  /// A watch that sees no other gateway.
  private var blind: HistoryWatch
  var candidate: Candidate? = Candidate(session: "s")
  /// An acquisition whose session is being read.
  private var loading: Acquisition?
  var tenure: Tenure?
  /// When the last confirmed heartbeat was sent. The test computes the deadline from this time.
  var lastConfirmedBeat: MonotonicTime?
  /// The server that has confirmed the last confirmed heartbeat.
  var leaseServer: RedisServer?

  // The state of this gateway as the holder.
  var terms = HolderTerms()
  var epoch: UInt64 = 0
  var log: [PushEntry] = []
  var state = StoredState()
  struct Write {
    let number: UInt64
    var pushes: [PushEntry]
    var changes: [StoredChange]
    var actions: [() throws -> Void]
    let newState: StoredState?
  }
  var pendingPushes: [PushEntry] = []
  var pendingChanges: [StoredChange] = []
  var pendingActions: [() throws -> Void] = []
  var write: Write?
  /// Writes that are stored but not confirmed.
  var unconfirmed: [Write] = []
  var isSocketOpen = false
  var socketTime: MonotonicTime?
  /// Messages on the socket, with the times of their confirmation.
  var written: [(message: Int, time: MonotonicTime)] = []
  var intending = false

  // The pushes that readers see.
  var view: PushLog?
  var viewTerms = HolderTerms()
  var viewEpoch: UInt64 = 0
  var copy: [PushEntry] = []
  var needsLoad = true
  var isLoading = false
  var loads = 0

  init(_ world: ReplicationWorld) {
    self.world = world
    id = GatewayID(using: &world.random)
    rate = Double.random(in: 0.96...1.04, using: &world.random)
    offset = Double.random(in: 1...100_000, using: &world.random)
    var times = TenureTimes(lease: .seconds(world.leases.randomElement(using: &world.random) ?? 5))
    // 0, since no server loses all of its data.
    times.readingsBeforeCreation = 0
    self.times = times
    heartbeat = Heartbeat(world.bug == .noDeadline ? TenureTimes(lease: .seconds(10_000), margin: .zero) : times)
    watch = HistoryWatch(own: id, times)
    blind = watch
  }

  var now: MonotonicTime { .zero + .microseconds(Int64((Double(world.time) * rate + offset) * 1000)) }
  var isRunning: Bool { !isDead && world.time >= frozenUntil }
  var mayWrite: Bool { tenure?.mayWrite(heartbeat, now: now) ?? false }

  // MARK: Turn

  func turn() throws {
    guard isRunning else { return }
    if heartbeat.check(now: now) { endTerm() }
    if let endTime, world.time >= endTime { leave() }
    try connect()
    if let connection, connection.isOpen {
      let received = connection.received
      connection.received = []
      for action in received where connection.isOpen && connection === self.connection { action() }
      sendHeartbeat(connection)
      try decide(connection)
      load(connection)
    }
    if let problem = world.problem { throw problem }
    try useUpstream()
  }

  private func connect() throws {
    if let open = connection {
      let isBroken = !open.isOpen || !open.server.isAlive || !open.server.isPrimary
      if isBroken || world.time < partitionedUntil || world.time < world.downUntil
        || (open.server !== world.primary && world.time >= noticeTime)
      {
        world.close(open)
        connection = nil
        heartbeat.disconnected()
        tenure?.disconnected()
        candidate?.disconnected()
        (loading, isLoading) = (nil, false)
      }
    }
    guard connection == nil, world.time >= partitionedUntil, world.time >= world.downUntil else { return }
    var server = world.time >= noticeTime ? world.primary : world.other(world.primary)
    if !server.isAlive || !server.isPrimary { server = world.primary }
    guard server.isAlive else { return }
    let new = RedisConnection(server)
    connection = new
    new.notify = { [unowned self] bits in self.notify(bits) }
    world.connections.append(new)
    let history = bug == .serverNameAsHistory ? server.name : server.history
    _ = watch.connected(to: history, now: now)
    _ = blind.connected(to: history, now: now)
    tenure?.disconnected()
    candidate?.disconnected()
    needsLoad = true
    if bug != .loadBeforeSubscribe { subscribe(new) }
  }

  private func subscribe(_ connection: RedisConnection) {
    send(connection, { _ in .ok }) { [unowned self] _, _ in
      connection.isSubscribed = true
      if self.bug != .loadBeforeSubscribe { self.needsLoad = true }
    }
  }

  func notify(_ bits: Int) {
    needsLoad = true
    if bits & 2 != 0 { candidate?.changed() }
  }

  func send(
    _ connection: RedisConnection, publishing bits: Int = 0, _ execute: @escaping (RedisServer) -> RedisReply,
    then: @escaping (RedisReply, Bool) -> Void
  ) {
    connection.sent.append(.init(time: world.time, publishes: bits, execute: execute, then: then))
  }

  private func sendHeartbeat(_ connection: RedisConnection) {
    guard let next = heartbeat.nextTime, now >= next else { return }
    if tenure?.isSettled(watch, heartbeat) ?? true { watch.allAreSettled() }
    let time = now
    let beat = heartbeat.send(now: time)
    var text = ByteQueue()
    GatewayEntry(
      beat: beat, history: watch.settledHistory,
      lease: bug == .leaseNotStored ? TenureTimes().lease : times.lease, isDraining: isDraining
    ).write(into: &text)
    let (own, bytes, old) = (id, text.copyBytes(), watch.forgettable(now: now))
    send(connection, { $0.heartbeat(own, bytes, forgetting: old) }) { [unowned self] reply, isConfirmed in
      guard case .entries(let entries) = reply else { return }
      if isConfirmed { (self.lastConfirmedBeat, self.leaseServer) = (time, connection.server) }
      let lapses = self.heartbeat.lapses
      self.heartbeat.finished(isConfirmed: isConfirmed, now: self.now)
      if self.heartbeat.lapses != lapses { self.endTerm() }
      self.watch.received(entries, now: self.now)
      self.blind.received([], now: self.now)
    }
  }

  // MARK: Decisions

  private func decide(_ connection: RedisConnection) throws {
    if tenure != nil {
      let command =
        tenure?.next(
          hasEntries: hasPending, bug == .noRegistration ? blind : watch, heartbeat, now: now, using: &world.random)
        ?? .none
      try perform(command, connection)
    } else if let command = candidate?.next(
      isDraining: isDraining && bug != .drainingAcquires, watch, heartbeat, now: now, using: &world.random)
    {
      if bug == .drainingKeepsToken, isDraining, case .acquire = command { return }
      perform(command, connection)
    }
  }

  private func perform(_ command: Candidate.Command, _ connection: RedisConnection) {
    switch command {
    case .none, .wait: break
    case .read:
      send(connection, { .record($0.content.record) }) { [unowned self] reply, _ in
        if case .record(let record) = reply { self.candidate?.observed(record) }
      }
    case .acquire(let acquisition):
      let bug = bug
      if isDraining, acquisition.expected.token?.gateway != id {
        world.problem = Violation(description: "a gateway that drains acquires the session")
      }
      if acquisition.mayHaveLostEntries { world.acquires(self) }
      send(connection, publishing: 2, { $0.acquire(acquisition, bug) }) { [unowned self] reply, _ in
        guard case .ok = reply else {
          self.candidate?.failed(now: self.now)
          return
        }
        guard !self.isDraining || bug == .drainingAcquires else { return self.release(acquisition, connection) }
        self.loading = acquisition
        self.send(connection, { .content($0.content) }) { [unowned self] reply, _ in
          guard self.loading == acquisition else { return }
          self.loading = nil
          guard case .content(let content) = reply, let tenure = self.candidate?.acquired() else { return }
          self.begin(acquisition, tenure, content)
        }
      }
    }
  }

  /// Releases an acquisition that is not used.
  private func release(_ acquisition: Acquisition, _ connection: RedisConnection) {
    candidate?.failed(now: now)
    let (successor, bug) = (watch.successor(for: "s", now: now), bug)
    send(
      connection, publishing: 2,
      {
        $0.release(
          acquisition.token, acquisition.history, expected: acquisition.expected.sequence, to: successor, bug)
      }
    ) { _, _ in }
  }

  private func perform(_ command: Tenure.Command, _ connection: RedisConnection) throws {
    guard let tenure else { return }
    let (token, sequence) = (tenure.token, tenure.sequence)
    let bug = bug
    switch command {
    case .none: break
    case .read:
      send(connection, { .record($0.content.record) }) { [unowned self] reply, isConfirmed in
        guard case .record(var record) = reply else { return }
        if bug == .tokenByCounter, record.token?.term.counter == token.term.counter { record.token = token }
        if bug == .laterTermWins, let other = record.token, other != token, other.term < token.term {
          record.terms = HolderTerms()
        }
        self.tenure?.observed(record, isConfirmed: isConfirmed || bug == .noWait)
        self.writesChanged()
      }
    case .append(let number, let expected, let history):
      if write?.number != number || bug == .repeatedWriteGrows { takeWrite(number, state: nil) }
      let (pushes, changes) = (write?.pushes ?? [], write?.changes ?? [])
      send(
        connection, publishing: 1,
        { $0.append(token, history, expected: expected, number: number, pushes, changes, bug) }, then: written)
    case .replace(let number, let record):
      takeWrite(number, state: state)
      let history = watch.history
      guard bug == .stampedFirst else { return replace(connection, token, record, record.history, number) }
      let counter = record.counter + SharedRecord.counterDistance
      send(
        connection, publishing: 2,
        { $0.stamp(token, from: record.history, to: history, expected: record.sequence, counter: counter, bug) }
      ) { [unowned self] _, _ in self.replace(connection, token, record, history, number) }
    case .acquire(let acquisition):
      send(connection, publishing: 2, { $0.acquire(acquisition, bug) }) { [unowned self] reply, _ in
        guard case .ok = reply else {
          self.tenure?.failed(now: self.now)
          return
        }
        self.tenure?.acquired()
        guard acquisition.token != token else { return }
        self.terms = self.begun(acquisition)
        self.beginTerm(.upstream, unknown: [])
      }
    case .stamp(let from, let to, let counter):
      send(
        connection, publishing: 2,
        { $0.stamp(token, from: from, to: to, expected: sequence, counter: counter, bug) }
      ) { [unowned self] reply, _ in
        if case .ok = reply { self.tenure?.stamped() } else { self.tenure?.failed(now: self.now) }
      }
    case .release(let history, var expected, let successor):
      if bug == .ownWriteAwaited { expected = sequence }
      world.releaseTime = world.time
      closeSocket()
      send(
        connection, publishing: 2, { [expected] in $0.release(token, history, expected: expected, to: successor, bug) }
      ) { [unowned self] reply, _ in
        if case .ok = reply { self.giveUp() } else { self.tenure?.failed(now: self.now) }
      }
    case .giveUp: giveUp()
    }
  }

  /// Writes the pushes that Redis lacks, and then the state.
  private func replace(
    _ connection: RedisConnection, _ token: HolderToken, _ record: SharedRecord, _ history: String, _ number: UInt64
  ) {
    let (missing, state, bug) = (log.filter { $0.id > record.last }, state, bug)
    let sequence = record.sequence
    if bug == .noRepair {
      send(
        connection, { $0.replace(token, history, expected: sequence, number: number, $0.content.state, bug) },
        then: written)
      return
    }
    send(
      connection, publishing: 1,
      { $0.append(token, history, expected: sequence, number: sequence, missing, [], bug) }
    ) { [unowned self] reply, _ in
      guard case .ok = reply else { return self.written(reply, false) }
      self.send(
        connection,
        {
          let state = bug == .stateNotReplaced ? $0.content.state : state
          return $0.replace(token, history, expected: sequence, number: number, state, bug)
        }, then: self.written)
    }
  }

  // MARK: Writes

  var hasPending: Bool { !pendingPushes.isEmpty || !pendingChanges.isEmpty }

  /// Moves the pending entries into a write. A state contains all entries that were not stored before.
  private func takeWrite(_ number: UInt64, state: StoredState?) {
    var taken = Write(
      number: number, pushes: pendingPushes, changes: pendingChanges, actions: pendingActions, newState: state)
    if let old = write, state != nil || old.number == number {
      taken.pushes = old.pushes + taken.pushes
      taken.changes = old.changes + taken.changes
      taken.actions = old.actions + taken.actions
    }
    if state != nil {
      taken.actions = unconfirmed.flatMap(\.actions) + taken.actions
      unconfirmed = []
    }
    write = taken
    (pendingPushes, pendingChanges, pendingActions) = ([], [], [])
  }

  private func written(_ reply: RedisReply, _ isConfirmed: Bool) {
    if case .ok = reply {
      tenure?.stored(
        isConfirmed: isConfirmed || bug == .noWait,
        last: log.last(where: { entry in
          !pendingPushes.contains(entry)
        })?.id ?? .none)
    } else {
      tenure?.failed(now: now)
    }
    writesChanged()
  }

  /// Shows and acknowledges stored entries.
  private func writesChanged() {
    guard let tenure else { return }
    if let stored = write, tenure.sequence == stored.number {
      unconfirmed.append(stored)
      write = nil
    }
    while let first = unconfirmed.first, tenure.confirmed >= first.number {
      unconfirmed.removeFirst()
      do { for action in first.actions { try action() } } catch { world.problem = error as? Violation }
    }
  }

  func submit(_ change: StoredChange, then: @escaping () throws -> Void = {}) {
    state.apply(change)
    pendingChanges.append(change)
    pendingActions.append(then)
  }

  func submit(_ entry: PushEntry, then: @escaping () throws -> Void) {
    log.append(entry)
    pendingPushes.append(entry)
    pendingActions.append(then)
  }

  // MARK: The session

  private func begin(_ acquisition: Acquisition, _ new: Tenure, _ content: RedisContent) {
    tenure = new
    candidate = nil
    (terms, epoch) = (begun(acquisition), acquisition.epoch)
    (log, state) = (content.pushes, content.state)
    (pendingPushes, pendingChanges, pendingActions, write, unconfirmed) = ([], [], [], nil, [])
    (written, intending) = ([], false)
    let isLost = acquisition.mayHaveLostEntries
    let marks: GapMarks = isLost && bug != .noGapAfterUnstamped ? [.upstream, .store] : .upstream
    // Messages that may have been sent: each message with a stored intent, or every message if intents may be lost.
    beginTerm(marks, unknown: state.queue.filter { isLost && bug != .queueSentAfterLoss || $0 <= state.intended })
  }

  private func begun(_ acquisition: Acquisition) -> HolderTerms {
    bug == .sameTerm && acquisition.expected.terms.last != nil ? acquisition.expected.terms : acquisition.terms
  }

  private func beginTerm(_ marks: GapMarks, unknown: [Int]) {
    for message in unknown { submit(.settled(message, .unknown)) }
    submit(.opened)
    let last = log.last?.id ?? .none
    let gap = PushEntry(id: PushEntryID(push: last.push, count: last.count + 1), content: nil, marks: marks)
    submit(gap) { [unowned self] in
      let entries = self.log.filter { $0.id <= gap.id }
      try self.show(entries, self.terms, self.epoch)
    }
    socketTime = now + .milliseconds(Int64.random(in: 50...300, using: &world.random))
  }

  private func closeSocket() {
    guard bug != .noDeadline || tenure == nil || isDead else { return }
    isSocketOpen = false
    socketTime = now + .milliseconds(Int64.random(in: 50...300, using: &world.random))
    for (message, _) in written where tenure != nil { submit(.settled(message, .unknown)) }
    written = []
  }

  /// Called when the deadline has passed.
  private func endTerm() {
    closeSocket()
    if isDraining { releaseSoon() }
  }

  /// Begins to drain: acquires no further session, and ends at `time`.
  func drain(until time: Int) {
    endTime = time
    heartbeat.hasten()
    if let connection, let acquisition = loading, bug != .drainingAcquires {
      loading = nil
      release(acquisition, connection)
    }
    if !mayWrite { releaseSoon() }
  }

  private func leave() {
    if tenure == nil {
      isDead = true
    } else if !isSilent {
      releaseSoon()
    }
  }

  private func releaseSoon() {
    isSilent = true
    if bug == .drainingRenews, let endTime, world.time < endTime { return }
    tenure?.releaseSoon(to: watch.successor(for: "s", now: now))
  }

  private func giveUp() {
    candidate = Candidate(session: "s", counter: tenure?.token.term.counter ?? 0)
    closeSocket()
    tenure = nil
    (pendingPushes, pendingChanges, pendingActions, write, unconfirmed) = ([], [], [], nil, [])
    needsLoad = true
  }
}
