import ByteStreams
import Inbox
import TestSupport

@testable import Replication

/// One session, three gateways, a primary and a replica of Redis, and readers. Time advances in steps of 25 ms.
final class ReplicationWorld {
  struct Push {
    let term: UInt64
    let number: UInt64
    /// The push arrived at a gateway that still used a replaced primary. This can happen only without WAIT.
    let isSplit: Bool
  }

  static let step = 25

  let bug: PlantedBug?
  let waits: Bool
  let duration: Int
  /// The values of `store.lease` of the gateways, in seconds. They differ while a change is deployed.
  let leases: [Int64]
  var random: SeededGenerator
  var time = 0
  /// When the last fault is over.
  var calmTime = 0
  var problem: Violation?

  private let servers = [RedisServer("A"), RedisServer("B")]
  var primary: RedisServer
  private var histories = 0
  /// Data that the replica has not received yet.
  private var stream: [(time: Int, content: RedisContent)] = []
  private var lag = 50
  private var unlinkedUntil = 0
  var downUntil = 0
  private var plannedFailover = 0
  private var killTimes: [(time: Int, gateway: SimulatedGateway)] = []
  private var freezeTimes: [(time: Int, gateway: SimulatedGateway)] = []
  /// When the last push arrived; nil if it has not arrived yet.
  private var endTime: Int?
  var connections: [RedisConnection] = []
  /// Commands of closed connections that still arrive.
  private var late: [(time: Int, server: RedisServer, command: RedisConnection.Command)] = []

  var gateways: [SimulatedGateway] = []
  private var ended: [SimulatedGateway] = []
  let readers = (0..<4).map { _ in SimulatedReader() }

  // The events so far.
  var messages: [RetainedMessage] = []
  var pushes: [Push] = []
  private var renderer = MessageRenderer()
  struct Key: Hashable {
    let epoch: UInt64
    let term: UInt64
    let number: UInt64
  }
  var revealed: [Key: Int] = [:]
  private var posted = 0
  private(set) var accepted: [Int] = []
  /// For each message, the server that confirmed the last heartbeat, each time the message was sent.
  private var sentWith: [[RedisServer]] = []
  var releaseTime: Int?
  private(set) var openings: [(time: Int, gateway: GatewayID)] = []
  private(set) var failovers = 0

  init(seed: UInt64, bug: PlantedBug? = nil, waits: Bool, duration: Int = 40_000, leases: [Int64] = [5, 5, 5, 7]) {
    self.bug = bug
    self.waits = waits
    self.duration = duration
    self.leases = leases
    random = SeededGenerator(seed: seed)
    primary = servers[0]
    primary.isPrimary = true
    primary.history = "H0"
    gateways = (0..<3).map { _ in SimulatedGateway(self) }
  }

  var isBusy: Bool { time < duration }
  /// Whether the last fault and the last push are long enough ago. Then the session must have a holder, and followers
  /// must have its last push.
  var isCalm: Bool { time >= max(max(duration, calmTime) + 10_000, (endTime ?? 0) + 5000) }

  func other(_ server: RedisServer) -> RedisServer { server === servers[0] ? servers[1] : servers[0] }
  func chance(_ percent: Double) -> Bool { Double.random(in: 0..<100, using: &random) < percent }
  private func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }

  // MARK: Time

  func turn(withFaults: Bool = true) throws {
    time += Self.step
    replicate()
    restoreServers()
    if plannedFailover > 0, time >= plannedFailover {
      plannedFailover = 0
      if chance(50) {
        for gateway in gateways where gateway.isRunning { gateway.partitionedUntil = time + number(500...3000) }
      }
      failOver(keepsOld: chance(50), noticed: chance(50) ? 5000 : 0)
    }
    if withFaults, isBusy, chance(1) { fault() }
    for (killTime, gateway) in killTimes where killTime <= time && !gateway.isDead { kill(gateway) }
    killTimes.removeAll { $0.time <= time }
    for (freezeTime, gateway) in freezeTimes where freezeTime <= time { freeze(gateway, number(5500...8000)) }
    freezeTimes.removeAll { $0.time <= time }
    end()
    execute()
    for index in gateways.indices {
      let gateway = gateways[index]
      if gateway.isDead {
        if let connection = gateway.connection { close(connection) }
        gateway.connection = nil
        if gateway.returnTime == 0 { gateway.returnTime = time + number(500...4000) }
        guard time >= gateway.returnTime else { continue }
        ended.append(gateway)
        gateways[index] = SimulatedGateway(self)
      }
      try gateways[index].turn()
    }
    if waits, gateways.filter({ !$0.isDead && $0.mayWrite }).count > 1 {
      throw Violation(description: "two gateways may write")
    }
    for reader in readers where chance(10) {
      if let gateway = gateways.randomElement(using: &random), gateway.isRunning { reader.read(gateway, self) }
    }
    if isBusy, chance(20) { post() }
  }

  private func post() {
    guard let holder = gateways.first(where: { $0.isRunning && $0.mayWrite }) else { return }
    let message = posted
    posted += 1
    sentWith.append([])
    holder.submit(.accepted(message)) { [unowned self] in self.accepted.append(message) }
  }

  // MARK: Redis

  private var isLinked: Bool { time >= unlinkedUntil && other(primary).isAlive && !other(primary).isPrimary }

  private func replicate() {
    guard isLinked else { return stream.removeAll() }
    while let first = stream.first, first.time <= time {
      other(primary).content = first.content
      stream.removeFirst()
    }
  }

  private func restoreServers() {
    let old = other(primary)
    if old.returnTime > 0, time >= old.returnTime {
      old.returnTime = 0
      (old.isAlive, old.isPrimary, old.content) = (true, false, primary.content)
      late.removeAll { $0.server === old }
      for connection in connections where connection.server === old { connection.isOpen = false }
    }
    if primary.returnTime > 0, time >= primary.returnTime {
      primary.returnTime = 0
      primary.isAlive = true
    }
    if unlinkedUntil > 0, time >= unlinkedUntil {
      unlinkedUntil = 0
      if isLinked { other(primary).content = primary.content }
    }
  }

  /// Executes the commands that have arrived, in the order of each connection, and ends the WAITs for earlier commands.
  private func execute() {
    for connection in connections where connection.isOpen {
      for (command, reply) in connection.executed {
        let isConfirmed = !waits || confirm(connection.server)
        connection.received.append { command.then(reply, isConfirmed) }
      }
      connection.executed = []
      guard connection.server.isAlive else { continue }
      let arrived = connection.sent.prefix { $0.time < time }
      connection.sent.removeFirst(arrived.count)
      for command in arrived { connection.executed.append((command, run(command, connection.server))) }
    }
    for item in late where item.time <= time && item.server.isAlive { _ = run(item.command, item.server) }
    late.removeAll { $0.time <= time }
    connections.removeAll { !$0.isOpen }
  }

  private func confirm(_ server: RedisServer) -> Bool {
    guard server === primary, server.isAlive, isLinked else { return false }
    stream.removeAll()
    other(primary).content = server.content
    return true
  }

  private func run(_ command: RedisConnection.Command, _ server: RedisServer) -> RedisReply {
    guard server.isPrimary else { return .refused }
    let reply = command.execute(server)
    if server === primary, isLinked { stream.append((time + lag, server.content)) }
    if case .ok = reply, command.publishes > 0 {
      for connection in connections where connection.server === server && connection.isOpen && connection.isSubscribed {
        connection.received.append { [unowned connection] in connection.notify(command.publishes) }
      }
    }
    return reply
  }

  func close(_ connection: RedisConnection, late percent: Double = 30) {
    guard connection.isOpen else { return }
    connection.isOpen = false
    let delay = chance(50) ? 2000 : 200
    for command in connection.sent where chance(percent) {
      late.append((time + number(0...delay), connection.server, command))
    }
  }

  private func failOver(keepsOld: Bool, noticed: Int) {
    let (old, new) = (primary, other(primary))
    guard isLinked, old.isAlive else { return }
    failovers += 1
    histories += 1
    stream.removeAll()
    new.isPrimary = true
    new.history = "H\(histories)"
    primary = new
    old.returnTime = time + (keepsOld ? number(500...11_000) : number(2000...6000))
    if !keepsOld {
      (old.isAlive, old.isPrimary) = (false, false)
      late.removeAll { $0.server === old }
    }
    calm(old.returnTime - time)
    for gateway in gateways { gateway.noticeTime = time + number(0...noticed) }
    calm(noticed)
  }

  // MARK: Faults

  private func calm(_ span: Int) { calmTime = max(calmTime, time + span) }

  private func fault() {
    guard let gateway = gateways.randomElement(using: &random) else { return }
    let holder = gateways.first { !$0.isDead && $0.tenure != nil }
    switch number(0...19) {
    case 0: freeze(gateway, number(500...10_000))
    case 1: kill(gateway)
    case 2, 3:
      gateway.partitionedUntil = time + number(500...9000)
      calm(gateway.partitionedUntil - time)
    case 4: failOver(keepsOld: false, noticed: 500)
    case 5: failOver(keepsOld: true, noticed: 4000)
    case 6: lag = [0, 50, 500, 1500].randomElement(using: &random) ?? 0
    case 7:
      downUntil = time + number(500...8000)
      calm(downUntil - time)
    case 8, 9:
      guard let holder else { return }
      kill(holder)
      failOver(keepsOld: chance(50), noticed: 4000)
    case 10, 11:
      guard let holder else { return }
      freeze(holder, number(5500...8000))
      lag = 1500
      plannedFailover = time + number(5200...7400)
      calm(plannedFailover - time + 11_000)
    case 12:
      let isLast = gateways.contains(where: \.isDraining)
      let span = isLast || chance(70) ? number(0...8000) : 1_000_000
      let chosen = chance(70) ? holder ?? gateway : gateway
      guard chosen.isRunning else { return }
      chosen.drain(until: time + span)
      if span < 1_000_000 { calm(span + 5000) }
    case 13:
      unlinkedUntil = time + number(500...5000)
      calm(unlinkedUntil - time)
    case 14, 15, 16:
      // Cuts connections. Their last commands still arrive.
      if let connection = (chance(70) ? holder ?? gateway : gateway).connection { close(connection, late: 100) }
    case 17:
      // Fails over, and kills the holder at about the time when it stamps the session.
      failOver(keepsOld: chance(50), noticed: 100)
      if let holder { killTimes.append((time + number(50...400), holder)) }
    default:
      // Restarts the primary with its data.
      guard primary.isAlive else { return }
      histories += 1
      primary.history = "H\(histories)"
      primary.isAlive = false
      primary.returnTime = time + number(100...6000)
      late.removeAll { $0.server === primary }
      for connection in connections where connection.server === primary { connection.isOpen = false }
      calm(primary.returnTime - time)
    }
  }

  /// Called when a gateway acquires a session that is not stamped.
  func acquires(_ gateway: SimulatedGateway) {
    guard isBusy, chance(30) else { return }
    if chance(50) {
      killTimes.append((time + number(50...125), gateway))
      calm(6000)
    } else {
      freezeTimes.append((time + number(150...400), gateway))
      lag = 1500
      plannedFailover = time + number(400...1500)
      calm(plannedFailover - time + 11_000)
    }
  }

  /// Sends the last push while the followers connect again.
  private func end() {
    let last = max(duration, calmTime) + 4000
    guard !isBusy, time >= last - 100, endTime == nil else { return }
    for gateway in gateways where gateway.tenure == nil && chance(30) {
      if let connection = gateway.connection { close(connection, late: 0) }
    }
    guard time >= last, let holder = gateways.first(where: { $0.mayWrite }) else { return }
    endTime = time
    holder.push()
  }

  private func freeze(_ gateway: SimulatedGateway, _ span: Int) {
    gateway.frozenUntil = time + span
    calm(span)
  }

  func kill(_ gateway: SimulatedGateway) {
    gateway.isDead = true
    calm(6000)
  }

  // MARK: Events

  func render(_ cursor: Cursor, at gateway: SimulatedGateway) -> Int {
    let content = messages.count
    messages.append(
      renderer.render(
        [0x31].span, kind: .text, topic: Span(), id: cursor, time: 0,
        arrival: MonotonicTime(nanoseconds: UInt64(content))))
    pushes.append(
      Push(term: cursor.term, number: cursor.sequence, isSplit: !waits && gateway.leaseServer !== primary))
    return content
  }

  /// Called when readers of a gateway can see this push.
  func reveal(_ number: UInt64, _ content: Int, _ terms: HolderTerms, _ epoch: UInt64) throws {
    guard let term = terms.begins.last(where: { $0.firstPush <= number })?.term.value else {
      throw Violation(description: "push \(number) belongs to no term")
    }
    let known = revealed.updateValue(content, forKey: Key(epoch: epoch, term: term, number: number))
    guard known == nil || known == content else { throw Violation(description: "push \(number) has two contents") }
    guard pushes[content].term == term else { throw Violation(description: "push \(number) has two ids") }
  }

  func sent(_ message: Int, by gateway: SimulatedGateway) throws {
    let earlier = sentWith[message]
    // Without WAIT, a gateway that still uses a replaced primary may become a second holder.
    let isSplit = !waits && (earlier.map(Optional.some) + [gateway.leaseServer]).contains { $0 !== primary }
    guard earlier.isEmpty || isSplit else { throw Violation(description: "message \(message) was sent twice") }
    sentWith[message].append(gateway.leaseServer ?? primary)
  }

  func opened(_ gateway: SimulatedGateway) { openings.append((time, gateway.id)) }
}
