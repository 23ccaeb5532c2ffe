import ByteStreams
import Foundation
import Inbox
import Journal
import JournalSupport
import Logging
import LoopbackSupport
import Metrics
import Outbox
import Reactor
import Redis
import RedisProtocol
import RedisSupport
import Replication
import TLSEngine
import Testing
import Threading
import Dialing

@testable import RedisStore

/// A store on a loop of its own, as in a gateway, and the reports of the store.
final class TestGateway: RedisStoreDelegate {
  struct LocalJournal: Sendable {
    let opened: OpenedJournal
    /// The state that the session must have after all submitted entries.
    var model: RestoredSession
  }

  struct State: Sendable {
    var local: [String: LocalJournal] = [:]
    /// The number of times that the gateway became the holder of a session.
    var acquisitions = 0
    var losses: [SessionLoss] = []
    var copies: [String: Copy] = [:]
    var holders: [String: SessionHolder] = [:]
    var secret = ""
    /// The number of reports of distant readers, by session.
    var distantReaders: [String: Int] = [:]
    var definitions: [String: SessionDefinition] = [:]
    /// The close codes of sessions that were removed, by their names in the store.
    var removals: [String: UInt16] = [:]
  }

  private let shared = Locked(State())
  private let loop: EventLoop
  private let stored = Locked<RedisStore?>(nil)
  /// For how many microseconds the loop is busy when it gets the secret, which arrives with a heartbeat.
  let delay = Locked<UInt32>(0)
  let registry = MetricsRegistry()
  /// The mailbox of a log in memory.
  private let mailbox = MemoryLog.Mailbox()
  var store: RedisStore { stored.withLock { $0 }! }

  convenience init(
    _ server: RedisProcess, port: UInt16? = nil, _ change: (inout RedisStoreSettings) throws -> Void = { _ in }
  ) throws {
    try self.init(port: port ?? server.port, in: nil, change)
  }

  convenience init(_ engine: TestEngine) throws {
    switch engine {
    case .memory(let memory): try self.init(port: 1, in: memory) { _ in }
    case .redis(let server): try self.init(server)
    }
  }

  private init(port: UInt16, in memory: MemoryServer?, _ change: (inout RedisStoreSettings) throws -> Void) throws {
    loop = try EventLoop(index: 0)
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    let url = try RedisURL("redis://127.0.0.1:\(port)")
    var settings = RedisStoreSettings(.server(try RedisEndpoint(url, TLSClientSettings(), with: &cache)))
    // The tenure is short, since tests wait for its end. A busy machine needs the margin.
    settings.times = TenureTimes(lease: .seconds(3), margin: .seconds(1), interval: .milliseconds(100))
    try change(&settings)
    let logger = Logger(level: .error, format: .text)
    let makeDialer: @Sendable (LoopContext) -> any Dialer = { NetworkDialer(resolver: Resolver(), loop: $0) }
    let store =
      if let memory {
        RedisStore.start(
          settings, on: loop, delegate: self, logger: logger, metrics: registry,
          makeLog: { [mailbox] owner, loop, _, _ in MemoryLog(memory, mailbox, loop: loop, owner: owner) },
          makeDialer: makeDialer)
      } else {
        RedisStore.start(
          settings, on: loop, delegate: self, logger: logger, metrics: registry, makeDialer: makeDialer)
      }
    stored.withLock { $0 = store }
  }

  static func sentinels(
    _ ports: [UInt16], with cache: inout TLSContextCache
  ) throws -> RedisConnector.Target {
    let primary = try RedisEndpoint(try RedisURL("redis://unused"), TLSClientSettings(), with: &cache)
    var sentinels: [RedisEndpoint] = []
    for port in ports {
      sentinels.append(try RedisEndpoint(try RedisURL("redis://127.0.0.1:\(port)"), TLSClientSettings(), with: &cache))
    }
    return .sentinels(sentinels, name: "main", primary: primary)
  }

  deinit {
    mailbox.close()
    loop.stop()
    // The loop calls its delegate, so it may release the last reference on its own thread, which cannot wait for its
    // own end.
    Thread.detachNewThread { [loop] in loop.join() }
  }

  var state: State { shared.withLock { $0 } }

  // MARK: RedisStoreDelegate

  func store(_ store: RedisStore, acquired name: String, _ opened: OpenedJournal) {
    shared.withLock {
      $0.local[name] = LocalJournal(opened: opened, model: opened.restored)
      $0.acquisitions += 1
    }
  }

  func store(_ store: RedisStore, lost name: String, _ reason: SessionLoss) {
    shared.withLock {
      $0.local[name] = nil
      $0.losses.append(reason)
    }
  }

  func store(_ store: RedisStore, follows name: String, _ change: FollowedChange) {
    shared.withLock { $0.copies[name, default: Copy()].apply(change) }
  }

  func store(_ store: RedisStore, finds name: String, at holder: SessionHolder?) {
    shared.withLock { $0.holders[name] = holder }
  }

  func store(_ store: RedisStore, shares secret: String) {
    shared.withLock { $0.secret = secret }
    usleep(delay.withLock { $0 })
  }

  func store(_ store: RedisStore, servesReadersOf name: String) {
    shared.withLock { $0.distantReaders[name, default: 0] += 1 }
  }

  func store(_ store: RedisStore, defines name: String, _ definition: SessionDefinition) {
    shared.withLock { $0.definitions[name] = definition }
    store.join(definition.storedName(name))
  }

  func store(_ store: RedisStore, removes name: String, _ definition: SessionDefinition, code: UInt16) {
    shared.withLock {
      $0.definitions[name] = nil
      $0.removals[definition.storedName(name)] = code
      $0.local[definition.storedName(name)] = nil
    }
  }

  // MARK: Test support

  func until(_ what: String, within limit: Duration = patience, _ fact: (State) -> Bool) async throws {
    try await LoopbackSupport.until("\(what): \(state.losses) \(store.state)", within: limit) { fact(state) }
  }

  @discardableResult
  func becomeHolder(_ name: String = "s", within limit: Duration = patience) async throws -> OpenedJournal {
    store.join(name)
    return try await untilHeld(name, within: limit)
  }

  @discardableResult
  func untilHeld(_ name: String = "s", within limit: Duration = patience) async throws -> OpenedJournal {
    try await until("held", within: limit) { $0.local[name] != nil }
    return try #require(state.local[name]).opened
  }

  func model(_ name: String = "s") throws -> RestoredSession { try #require(state.local[name]).model }

  @discardableResult
  func submit(_ entries: [JournalEntry], to name: String = "s") throws -> JournalTicket {
    let journal = try #require(
      shared.withLock { state in
        for entry in entries { _ = state.local[name]?.model.apply(entry) }
        return state.local[name]?.opened.journal
      })
    return journal.submit(contentsOf: entries)
  }

  /// Stores this many messages of 900 bytes, whose payloads are not needed any more.
  func storeSettledMessages(_ count: UInt64) async throws {
    for number in 1...count {
      let message = StoredMessage(
        number: number, payload: ByteString([UInt8](repeating: 7, count: 900)), kind: .text, topic: nil, deadline: nil,
        time: 0)
      let settlement = StoredSettlement(
        first: number, last: number, state: 3, reason: 0, time: 0, releasesPayloads: true)
      let ticket = try submit([.accepted(message), .settled(settlement)])
      if number % 400 == 0 { try await untilStored(ticket) }
    }
  }

  func untilStored(_ ticket: JournalTicket, _ name: String = "s", within limit: Duration = patience) async throws {
    let journal = try #require(state.local[name]).opened.journal
    try await until("stored", within: limit) { _ in journal.outcome(of: ticket) == .stored }
  }

  func store(_ entries: [JournalEntry], in name: String = "s") async throws {
    try await untilStored(try submit(entries, to: name), name)
  }

  /// Ends in order: releases all sessions.
  func close() async {
    await withCheckedContinuation { continuation in store.close { continuation.resume() } }
  }

  /// Ends like a process that is killed.
  func kill() {
    mailbox.close()
    loop.stop()
    loop.join()
  }

  func metric(_ name: String) -> Double {
    var text = ByteQueue()
    registry.render(into: &text)
    let line = String(decoding: text.copyBytes(), as: UTF8.self).split(separator: "\n")
      .first { $0.hasPrefix(name + " ") || $0.hasPrefix(name + "{") }
    return line.flatMap { $0.split(separator: " ").last }.flatMap { Double($0) } ?? 0
  }
}

/// A follower's copy, made from the reports of the store.
struct Copy: Sendable, Equatable {
  var epoch: UInt64 = 0
  var terms = HolderTerms()
  var pushes: [UInt64: StoredPush] = [:]
  /// By the number of the push before the gap.
  var gaps: [UInt64: GapMarks] = [:]
  var last: UInt64 = 0
  var restarts = 0
  var cuts = 0
  /// Whether a push did not follow the push before it.
  var isBroken = false
  var isCurrent = false
  var hasEnded = false
  /// The number of the last complete refresh.
  var refreshed: UInt64 = 0

  mutating func apply(_ change: FollowedChange) {
    switch change {
    case .restarted(let epoch, let terms):
      let last = self
      self = Copy()
      (self.epoch, self.terms) = (epoch, terms)
      (restarts, cuts, isBroken) = (last.restarts + 1, last.cuts, last.isBroken)
      (isCurrent, refreshed) = (last.isCurrent, last.refreshed)
    case .continued(let end, let terms):
      self.terms = terms
      guard let end else { return }
      cuts += 1
      pushes = pushes.filter { $0.key <= end }
      gaps = gaps.filter { $0.key < end }
      last = end
    case .entries(let changes):
      for change in changes {
        if case .push(let push) = change {
          if push.number != last + 1, !pushes.isEmpty { isBroken = true }
          pushes[push.number] = push
          last = push.number
        } else if case .gap(let reasons) = change {
          gaps[last, default: []].formUnion(reasons)
        } else if case .retained(let retention) = change {
          pushes = [:]
          last = retention.first - 1
        }
      }
    case .ended: (isCurrent, hasEnded) = (false, true)
    case .isCurrent: isCurrent = true
    case .isOutdated: isCurrent = false
    case .refreshed(let number): refreshed = number
    }
  }

  /// Whether the copy has the retained pushes and the gaps between them.
  func equals(_ session: RestoredSession) -> Bool {
    guard epoch == session.epoch, last + 1 == session.log.nextPush, !isBroken else { return false }
    for index in session.log.pushes.front..<session.log.pushes.end {
      guard pushes[session.log.pushes[index].number] == session.log.pushes[index] else { return false }
    }
    return session.log.gaps.allSatisfy { $0.after < session.log.firstRetained || gaps[$0.after] == $0.marks }
  }
}

extension RestoredSession {
  /// The state in which the next holder opens the session.
  func reopened(_ terms: [JournalTerm], gap: GapMarks = .upstream) -> RestoredSession {
    var result = self
    if let term = terms.last { _ = result.apply(.opened(term)) }
    if gap.contains(.store) || !mayBeContinued { _ = result.apply(.log(.gap(gap))) }
    result.mayHaveLostEntries = gap.contains(.store)
    return result
  }

  /// The state without the pushes that retention has dropped in `other`. Rows are deleted as a whole, so some of these
  /// pushes may still be stored.
  func trimmed(as other: RestoredSession) -> RestoredSession {
    var result = self
    _ = result.apply(.log(.retained(other.log.retention)))
    return result
  }
}
