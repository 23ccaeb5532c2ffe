import ByteStreams
import CVirtualClock
import Configuration
import Foundation
import Journal
import Outbox
import Sessions
import Submissions
import TestSupport
import Upstream
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// A run: clients, gateways, their store and their upstream act and fail at random. The seed determines the run. One
/// gateway dies when it submits a given entry.
final class World: SimulatedGateway.Observer {
  /// Whether to print the observations.
  static let isTraced = ProcessInfo.processInfo.environment["DRAWBRIDGE_SIMULATION_TRACE"] != nil
  private static var steps: Int { 90 }
  /// The time from a renewal to the deadline of a gateway. `margin` later, another gateway may be the holder.
  fileprivate static var lease: TimeSpan { .seconds(3) }
  private static var margin: TimeSpan { .milliseconds(600) }

  let ledger: Ledger
  /// The number of entries that all gateways have submitted.
  private(set) var tickets = 0
  private let crashTicket: Int?
  private var hasCrashed = false
  private let bug: PlantedBug?
  private let store: HostileStore
  private let peer: ScriptedPeer
  private let settings: GatewaySettings
  private var random: SeededGenerator
  private var now: UInt64 = 1_000_000_000_000
  /// The gateway in each place. A gateway that has died is replaced by another process.
  private var gateways: [SimulatedGateway?]
  private var processes = 0
  private var hasFailed = false
  private var posts: [Post] = []
  private var held: [HeldRequest] = []
  private var busyReaders: Set<Int> = []
  private var hasConsumer = false
  /// Whether a gateway has ever finished connecting.
  private var hasBeenReady = false
  private var leases: [(lease: String, number: Int)] = []
  private var isChanging = false
  /// Whether the last change of the session was to open it, and succeeded.
  private var isOpen = true
  /// Whether the last change of the session was to close it, and succeeded. A connection attempt may begin in the turn
  /// of the response.
  private var isClosed = false

  /// A POST. It may be repeated if it has a key.
  private struct Post {
    let names: [String]
    let key: String?
    let timeToLive: Int?
    let topic: String?
    let until: String?
  }

  /// - Parameter crashTicket: the number of the entry at which a gateway dies; nil for no crash at an entry.
  init(seed: UInt64, crashTicket: Int? = nil, bug: PlantedBug? = nil) throws(Violation) {
    virtual_clock_begin(now, seed)
    let isFile = seed.isMultiple(of: 3)
    self.crashTicket = crashTicket
    self.bug = bug
    random = SeededGenerator(seed: seed &* 4)
    ledger = Ledger(redelivers: seed.isMultiple(of: 2), readers: 2)
    store = HostileStore(isFile: isFile, seed: seed &* 4 + 1, bug: bug)
    peer = ScriptedPeer(ledger, seed: seed &* 4 + 2)
    var settings = GatewaySettings()
    settings.store.engine = isFile ? .sqlite : .redis
    settings.session.upstream.url = try? WebSocketURL("ws://127.0.0.1:1/")
    settings.session.upstream.session.backoff.strategy = .fixed(.milliseconds(50))
    settings.session.upstream.session.backoff.quickReconnect = .milliseconds(10)
    settings.session.upstream.outbox.redelivery = seed.isMultiple(of: 2) ? .unconfirmed : .never
    settings.session.upstream.outbox.maximumAttempts = 200
    settings.session.upstream.conventions.correlation = .jsonRPC
    self.settings = settings
    gateways = Array(repeating: nil, count: isFile ? 1 : 2)
    for place in gateways.indices { try start(place) }
  }

  // MARK: The run

  func run() throws(Violation) {
    defer { for gateway in gateways { gateway?.bury() } }
    for _ in 0..<Self.steps {
      try step()
      try settle()
      // The end of the run checks the rest.
      if hasCrashed, chance(15) { break }
    }
    try finish()
    ledger.check()
    try check()
  }

  private func step() throws(Violation) {
    ledger.isClosed = isClosed
    advance(.milliseconds(Int64.random(in: 0...12, using: &random)))
    switch Int.random(in: 0..<100, using: &random) {
    case 0..<18: post()
    case 18..<23: repeatPost()
    case 23..<25: call()
    case 25..<32: readDelivery()
    case 32..<39: poll(Int.random(in: 0..<ledger.readers.count, using: &random), waits: chance(50))
    case 39..<46: consume()
    case 46..<49: changeSession(closes: chance(60))
    case 49..<52: if let request = held.randomElement(using: &random) { gateways.forEach { $0?.abandon(request) } }
    case 52..<60: for _ in 0...Int.random(in: 0...2, using: &random) { push() }
    case 60..<62: peer.breakConnections()
    case 62..<64: peer.responds.toggle()
    case 64..<65: peer.isReachable.toggle()
    case 65..<78: try keep()
    case 78..<89: confirm()
    case 89..<91: hasFailed ? try recover() : fail()
    case 91..<94: try freeze()
    case 94..<95:
      if let gateway = gateways.randomElement(using: &random) ?? nil, !store.isFile { gateway.isCut.toggle() }
    case 95..<96: if let gateway = gateways.randomElement(using: &random) ?? nil { die(gateway) }
    default: advance(.milliseconds(Int64.random(in: 20...1_500, using: &random)))
    }
  }

  /// Stops a gateway for some time, or continues a stopped gateway. A continued gateway reads the requests that have
  /// arrived before it notices that time has passed.
  private func freeze() throws(Violation) {
    guard !store.isFile else { return }
    if let gateway = gateways.compactMap(\.self).first(where: \.isPaused) {
      gateway.isPaused = false
      for _ in 0..<3 { chance(70) ? readDelivery(at: gateway) : post(at: gateway) }
    } else if let holder = gateways.compactMap(\.self).first(where: { $0.tenure != nil }) {
      holder.isPaused = true
      guard chance(70) else { return }
      for _ in 0..<5 {
        advance(.seconds(1))
        try settle()
      }
    }
  }

  /// Ends all faults, and waits until all messages and pushes have arrived.
  private func finish() throws(Violation) {
    (peer.responds, peer.isReachable) = (true, true)
    for gateway in gateways {
      gateway?.isPaused = false
      gateway?.isCut = false
    }
    if hasFailed { try recover() }
    for round in 0..<300 {
      advance(.milliseconds(60))
      for place in gateways.indices where gateways[place] == nil { try start(place) }
      try settle()
      try keepAll()
      try settle()
      if !isOpen { changeSession(closes: false) }
      guard round % 4 == 3 else { continue }
      let unfinished = ledger.unfinished
      for message in unfinished { readDelivery(message) }
      for reader in ledger.readers.indices { poll(reader) }
      consume(all: true)
      try settle()
      if held.isEmpty, unfinished.isEmpty, isRead, leases.isEmpty, isOpen, round > 12 { return }
    }
  }

  private var isRead: Bool {
    let read = ledger.readers.allSatisfy { $0.last == peer.pushes || $0.hasGap || peer.pushes <= ledger.lastUnexpected }
    return read && busyReaders.isEmpty
  }

  private func check() throws(Violation) {
    if !isRead { ledger.note("a reader has not got the last push, p\(peer.pushes)") }
    if let violation = ledger.violation { throw Violation(violation) }
  }

  // MARK: Time and chance

  private func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

  private var time: MonotonicTime { MonotonicTime(nanoseconds: now) }

  private func advance(_ span: TimeSpan) {
    now += UInt64(span.nanoseconds)
    virtual_clock_set(now)
    for case let gateway? in gateways where !store.isFile && !gateway.isPaused && !gateway.isCut {
      // A late gateway loses its sessions before it gets a new deadline.
      if gateway.tenure == nil || time < gateway.deadline { gateway.deadline = time + Self.lease }
    }
  }

  /// Runs turns of all gateways and the upstream, until nothing happens.
  private func settle() throws(Violation) {
    var quiet = 0
    for _ in 0..<100 where quiet < 2 {
      try elect()
      var isBusy = false
      for case let gateway? in gateways where !gateway.isDead { if gateway.turn() { isBusy = true } }
      if peer.turn() { isBusy = true }
      bury()
      quiet = isBusy ? 0 : quiet + 1
    }
    if let violation = ledger.violation { throw Violation(violation) }
  }

  // MARK: Gateways

  private func start(_ place: Int) throws(Violation) {
    processes += 1
    do {
      gateways[place] = try SimulatedGateway(processes, settings, isAlone: store.isFile, peer, bug: bug, self)
    } catch {
      throw Violation("a gateway cannot be made: \(error)")
    }
    if !store.isFile { gateways[place]?.deadline = time + Self.lease }
    _ = gateways[place]?.turn()
  }

  /// Makes a gateway the holder, and ends the term of a late gateway.
  private func elect() throws(Violation) {
    for case let gateway? in gateways where !gateway.isDead && !gateway.isPaused && gateway.tenure != nil {
      guard time >= gateway.deadline, chance(10), let tenure = gateway.tenure else { continue }
      try end(tenure)
      ledger.trace("gateway \(gateway.number) loses")
      gateway.lose()
      gateway.deadline = gateway.isCut ? gateway.deadline : time + Self.lease
    }
    if let tenure = store.tenure, let holder = gateways.compactMap(\.self).first(where: { $0.tenure === tenure }),
      time >= holder.deadline + Self.margin
    {
      try end(tenure)
    }
    guard store.tenure == nil, !hasFailed else { return }
    if chance(10) { for place in gateways.indices where gateways[place] == nil { try start(place) } }
    let free = gateways.compactMap(\.self).filter {
      !$0.isDead && !$0.isPaused && !$0.isCut && $0.tenure == nil && (store.isFile || time < $0.deadline)
    }
    guard let gateway = free.randomElement(using: &random) else { return }
    let opened = try store.open(for: gateway.queue, gateway)
    ledger.trace("gateway \(gateway.number) holds")
    if store.isFile { (ledger.isClosed, isClosed, isOpen) = (false, false, true) }
    gateway.becomeHolder(opened)
  }

  /// Lets each gateway that is not the holder read the log if it has changed since its last reading.
  private func follow() {
    for case let gateway? in gateways where gateway.tenure == nil && !gateway.isPaused && !gateway.isCut {
      guard gateway.rowsRead != store.rows.count, let copy = store.log else { continue }
      gateway.follow(copy.terms, copy.changes, rows: store.rows.count)
    }
  }

  private func end(_ tenure: Tenure) throws(Violation) {
    guard store.tenure === tenure else { return }
    try store.fence(tenure)
    ledger.ended(tenure)
  }

  func submitted(_ count: Int, by gateway: SimulatedGateway) {
    tickets += count
    guard let crashTicket, tickets >= crashTicket, !hasCrashed else { return }
    hasCrashed = true
    die(gateway)
  }

  /// Ends a process now. Data that it has sent arrives. A part of its submitted entries is stored.
  private func die(_ gateway: SimulatedGateway) {
    guard !gateway.isDead else { return }
    ledger.trace("gateway \(gateway.number) dies")
    gateway.die()
    peer.disconnect(gateway.number)
    guard let tenure = gateway.tenure else { return }
    do throws(Violation) { try end(tenure) } catch { ledger.note(error.description) }
  }

  private func bury() {
    for place in gateways.indices {
      guard let gateway = gateways[place], gateway.isDead else { continue }
      gateways[place] = nil
      gateway.bury()
    }
  }

  // MARK: The store

  /// The terms of all running gateways that reach the store, including terms that the store has ended.
  private var tenures: [Tenure] {
    gateways.compactMap(\.self).filter { !$0.isCut && !$0.isPaused }.compactMap { $0.isDead ? nil : $0.tenure }
  }

  private func keep(all: Bool = false) throws(Violation) {
    guard !hasFailed else { return }
    for tenure in tenures {
      tenure.gateway.handOver()
      try store.keep(of: tenure, all ? .max : Int.random(in: 0...tenure.handed.count, using: &random))
    }
  }

  private func confirm() {
    guard !hasFailed else { return }
    tenures.forEach(store.confirm)
    follow()
  }

  private func keepAll() throws(Violation) {
    for tenure in tenures {
      tenure.gateway.handOver()
      try store.keep(of: tenure, .max)
      store.confirm(tenure)
    }
    follow()
  }

  private func fail() {
    ledger.trace("store fails")
    hasFailed = true
    for gateway in gateways { gateway?.queue.setFailed(true) }
  }

  private func recover() throws(Violation) {
    ledger.trace("store recovers")
    hasFailed = false
    for case let gateway? in gateways where !gateway.isDead {
      gateway.queue.handOver(recovers: true)
      if let tenure = gateway.tenure {
        try store.keep(of: tenure, .max)
        store.confirm(tenure)
      }
      gateway.queue.setFailed(false)
    }
  }

  // MARK: Clients

  /// Sends a request to a gateway, usually to the holder.
  private func send(
    _ method: String, _ target: String, _ fields: String = "", body: String = "", at place: SimulatedGateway? = nil,
    then: @escaping (Received?, SimulatedGateway) -> Void
  ) -> Bool {
    let running = gateways.compactMap(\.self).filter { !$0.isDead && !$0.isPaused }
    let holder = running.first { $0.tenure != nil }
    guard let gateway = place ?? (chance(85) ? holder : nil) ?? running.randomElement(using: &random) else {
      return false
    }
    let head = "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\(fields)\r\n"
    ledger.trace("\(method) \(target) \(fields.filter { $0 != "\r" && $0 != "\n" }) \(body) to \(gateway.number)")
    var request: HeldRequest?
    request = gateway.send(Array((head + body).utf8)) { [unowned self, unowned gateway] response in
      ledger.trace("\(method) \(target) \(body): \(response.map { "\($0.status) \(Self.stable($0))" } ?? "nothing")")
      held.removeAll { $0 === request }
      request = nil
      then(response, gateway)
    }
    if let request { held.append(request) }
    return true
  }

  /// The parts of a response that are the same in all runs of a seed.
  private static func stable(_ response: Received) -> String {
    response.status >= 400 ? response.problem ?? "" : response.text("state") ?? ""
  }

  private func fact(of gateway: SimulatedGateway) -> Ledger.Fact? {
    gateway.tenure.map { Ledger.Fact(tenure: $0, ticket: gateway.queue.submissions.lastSubmitted) }
  }

  private func isCurrent(_ gateway: SimulatedGateway) -> Bool {
    gateway.tenure != nil && gateway.tenure === store.tenure
  }

  private func post(at gateway: SimulatedGateway? = nil) {
    let count = chance(15) ? Int.random(in: 2...3, using: &random) : 1
    let first = ledger.messages.count
    let post = Post(
      names: (first..<first + count).map { "m\($0)" }, key: chance(60) ? "k\(first)" : nil,
      timeToLive: chance(15) ? 1 : nil, topic: chance(15) ? "t" : nil, until: chance(25) ? "confirmed" : nil)
    guard submit(post, at: gateway) else { return }
    if post.key != nil { posts.append(post) }
  }

  private func repeatPost() { if let post = posts.randomElement(using: &random) { _ = submit(post) } }

  private func submit(_ post: Post, at gateway: SimulatedGateway? = nil) -> Bool {
    var fields = post.key.map { "Idempotency-Key: \($0)\r\n" } ?? ""
    if let time = post.timeToLive { fields += "TTL: \(time)\r\n" }
    if let topic = post.topic { fields += "Topic: \(topic)\r\n" }
    let isBatch = post.names.count > 1
    fields += isBatch ? "Content-Type: application/x-ndjson\r\n" : "Content-Type: text/plain\r\n"
    let target = "/v1/messages" + (post.until.map { "?until=\($0)&wait=2s" } ?? "")
    let body = isBatch ? post.names.map { "\"\($0)\"\n" }.joined() : post.names[0]
    let ends = (post.timeToLive == nil ? [] : ["expired"]) + (post.topic == nil ? [] : ["replaced"])
    ledger.begin(post.names, ends: Set(ends))
    let isSent = send("POST", target, fields, body: body, at: gateway) { [unowned self] in posted(post, $0, by: $1) }
    if !isSent { for name in post.names { ledger.messages[name]?.pending -= 1 } }
    return isSent
  }

  private func posted(_ post: Post, _ response: Received?, by gateway: SimulatedGateway) {
    let messages = post.names.compactMap { ledger.messages[$0] }
    for message in messages { message.pending -= 1 }
    guard let response else { return messages.forEach { $0.isUncertain = true } }
    switch response.status {
    case 200...299:
      let results = response.json["results"] as? [[String: Any]] ?? [response.json]
      for (name, result) in zip(post.names, results) {
        guard let id = result["id"] as? String, let state = result["state"] as? String else {
          ledger.refused(name, fact(of: gateway))
          continue
        }
        ledger.accepted(name, as: id)
        // `queued` needs no evidence: it is the state after the acceptance.
        if state != "queued" { ledger.shown(name, state, fact(of: gateway), isCurrent: isCurrent(gateway)) }
      }
    case 502, 409: messages.forEach { $0.isUncertain = true }
    case 503 where response.problem != "holder-unavailable" && response.body.contains("was not accepted"):
      for name in post.names { ledger.refused(name, fact(of: gateway)) }
    case 503: messages.forEach { $0.isUncertain = true }
    default: ledger.note("POST of \(post.names): \(response.status) \(response.body)")
    }
  }

  /// A call is not stored. The response must be the reply to this call.
  private func call() {
    let name = "c\(ledger.messages.count)"
    ledger.begin([name])
    let body = "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"\(name)\"}"
    _ = send("POST", "/v1/call?wait=1s", "Content-Type: application/json\r\n", body: body) {
      [unowned self] response, _ in
      guard let response, response.status == 200 else { return }
      if response.text("result") != name { ledger.note("the call \(name) gets \(response.body)") }
      if ledger.messages[name]?.received == 0 { ledger.note("the call \(name) was not received") }
    }
  }

  private func readDelivery(at gateway: SimulatedGateway? = nil) {
    let known = ledger.messages.values.filter { $0.id != nil }.sorted { $0.name < $1.name }
    if let message = known.randomElement(using: &random) { readDelivery(message, waits: chance(30), at: gateway) }
  }

  private func readDelivery(_ message: Ledger.Message, waits: Bool = false, at gateway: SimulatedGateway? = nil) {
    guard let id = message.id else { return }
    _ = send("GET", "/v1/deliveries/\(id)" + (waits ? "?wait=1s" : ""), at: gateway) {
      [unowned self] response, gateway in
      guard let response, response.status < 500 else { return }
      guard response.status == 200, let state = response.text("state"),
        !["forgotten", "store-lost"].contains(response.text("reason") ?? "")
      else { return ledger.note("\(message.name) was accepted and is lost: \(response.status) \(response.body)") }
      ledger.shown(message.name, state, fact(of: gateway), isCurrent: isCurrent(gateway))
    }
  }

  private func push() {
    peer.push()
    if !hasBeenReady { hasBeenReady = gateways.contains { $0?.isReady == true } }
    if !hasBeenReady { ledger.lastUnexpected = peer.pushes }
  }

  private func poll(_ reader: Int, waits: Bool = false) {
    guard busyReaders.insert(reader).inserted else { return }
    let target = "/v1/messages?cursor=\(ledger.readers[reader].cursor)&wait=\(waits ? 1 : 0)s"
    let isSent = send("GET", target) { [unowned self] response, _ in
      busyReaders.remove(reader)
      guard let response, response.status == 200 else { return }
      let hasGap = !(response.json["gap"] is NSNull)
      ledger.read(Self.pushes(of: response), hasGap: hasGap, cursor: response.text("cursor"), by: reader)
    }
    if !isSent { busyReaders.remove(reader) }
  }

  /// Replies that come too late are pushes, too.
  private static func pushes(of response: Received) -> [(id: String, data: String)] {
    (response.json["messages"] as? [[String: Any]] ?? []).compactMap { message in
      (message["data"] as? String).map { (message["id"] as? String ?? "", $0) }
    }
  }

  /// Creates the consumer, receives, or acknowledges.
  private func consume(all: Bool = false) {
    let path = "/v1/consumers/c"
    if !hasConsumer {
      let body = "{\"share\":true,\"start\":\"earliest\",\"visibility\":\"500ms\",\"max_deliveries\":1000}"
      _ = send("PUT", path, body: body) { [unowned self] response, _ in
        if let response, response.status < 300 { hasConsumer = true }
      }
    } else if leases.isEmpty || !all && chance(30) {
      _ = send("POST", path + "/receive?limit=3&wait=\(!all && chance(50) ? 1 : 0)s") { [unowned self] response, _ in
        guard let response, response.status != 503, response.status != 502 else { return }
        guard response.status == 200 else { return ledger.note("receive: \(response.status) \(response.body)") }
        for message in response.json["messages"] as? [[String: Any]] ?? [] {
          guard let lease = message["lease"] as? String, let id = message["id"] as? String else { continue }
          let data = message["data"] as? String
          if let data { ledger.leased((id, data)) }
          leases.append((lease, data.flatMap { Int($0.dropFirst()) } ?? 0))
        }
      }
    } else {
      let settled = leases
      leases = []
      let body = "{\"ack\":[\(settled.map { "\"\($0.lease)\"" }.joined(separator: ","))]}"
      _ = send("POST", path + "/settle", body: body) { [unowned self] response, _ in
        if response?.status == 200 { ledger.acknowledged(settled.map(\.number)) }
      }
    }
  }

  private func changeSession(closes: Bool) {
    guard !isChanging else { return }
    (isChanging, isOpen) = (true, false)
    // The session may be open until the response confirms the change.
    (ledger.isClosed, isClosed) = (false, false)
    let body = "{\"desired\":\"\(closes ? "down" : "up")\"}"
    let isSent = send("PATCH", "/v1/session", body: body) { [unowned self] response, gateway in
      isChanging = false
      if response?.status == 200 { (isClosed, isOpen) = (closes, !closes) }
    }
    if !isSent { isChanging = false }
  }
}

extension World {
  /// The status of the response to a POST. Its message is stored but not confirmed when the deadline of the gateway
  /// passes and the store fails.
  static func statusAfterTheLease() throws(Violation) -> Int? {
    let world = try World(seed: 1)
    defer { for gateway in world.gateways { gateway?.bury() } }
    try world.settle()
    var status: Int?
    let holder = world.gateways.compactMap(\.self).first { $0.tenure != nil }
    _ = world.send("POST", "/v1/messages", "Content-Type: text/plain\r\n", body: "m0", at: holder) { response, _ in
      status = response?.status
    }
    try world.keep(all: true)
    world.now += UInt64(lease.nanoseconds)
    virtual_clock_set(world.now)
    world.fail()
    for gateway in world.gateways { _ = gateway?.turn() }
    return status
  }
}
