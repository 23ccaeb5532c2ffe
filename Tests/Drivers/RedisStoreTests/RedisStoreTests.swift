import ByteStreams
import Foundation
import Inbox
import Journal
import JournalSupport
import Outbox
import RedisProtocol
import RedisSupport
import Replication
import Submissions
import TestSupport
import Testing
import Threading
import Dialing

@testable import RedisStore

/// The journal in Redis, with real servers.
@Suite(needsRedis) struct RedisStoreTests {
  // MARK: Restoring

  @Test(arguments: 1...4 as ClosedRange<UInt64>)
  func aSessionIsRestoredAsItWasAfterAnOrderlyEnd(seed: UInt64) async throws {
    let server = try await RedisProcess.server()
    var writer = RandomSession(seed: seed, opensTerms: false)
    var gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    for run in 1...3 {
      for _ in 0..<40 {
        let ticket = try gateway.submit((0..<5).flatMap { _ in writer.nextEntries() })
        if seed % 2 == 0 { try await gateway.untilStored(ticket) }
      }
      let expected = try gateway.model()
      await gateway.close()
      gateway = try TestGateway(server)
      let restored = try await gateway.becomeHolder().restored
      #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms), "run \(run)")
    }
    await gateway.close()
  }

  @Test func acknowledgedEntriesSurviveTheDeathOfTheProcess() async throws {
    let server = try await RedisProcess.server()
    var writer = RandomSession(seed: 9, opensTerms: false)
    var gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    for _ in 0..<2 {
      for _ in 0..<10 { try await gateway.store(writer.nextEntries() + writer.nextEntries()) }
      let expected = try gateway.model()
      gateway.kill()
      let next = try TestGateway(server)
      let restored = try await next.becomeHolder().restored
      #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms))
      #expect(!restored.mayHaveLostEntries)
      gateway = next
    }
    await gateway.close()
  }

  @Test func manyEntriesAreReplacedByTheState() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    try await gateway.storeSettledMessages(12_000)
    let expected = try gateway.model()
    await gateway.close()
    let used = try await TestClient(server).integer("MEMORY", "USAGE", "{drawbridge}:s:s:c", "SAMPLES", "0")
    #expect(used < 8 << 20, "of 11 MB of messages, at most 4 MiB and the state are kept")
    let next = try TestGateway(server)
    let restored = try await next.becomeHolder().restored
    #expect(restored == expected.reopened(restored.terms))
    await next.close()
  }

  @Test func droppedPushesAreDeletedInRedis() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    for number in 1...3_000 as ClosedRange<UInt64> {
      var entries: [JournalEntry] = [.push(RandomSession.push(number, size: 1_000))]
      if number > 200 { entries.append(.trimmed(before: number - 199)) }
      let ticket = try gateway.submit(entries)
      if number % 20 == 0 { try await gateway.untilStored(ticket) }
    }
    let expected = try gateway.model()
    await gateway.close()
    let used = try await TestClient(server).integer("MEMORY", "USAGE", "{drawbridge}:s:s:p", "SAMPLES", "0")
    #expect(used < 1 << 20, "200 kB are kept, and Redis removes whole nodes")
    let next = try TestGateway(server)
    let restored = try await next.becomeHolder().restored
    #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms))
    await next.close()
  }

  @Test func aDamagedSessionIsNotUsed() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    try await gateway.store([.push(RandomSession.push(1))])
    await gateway.close()
    let client = try TestClient(server)
    _ = try await client.call("XADD", "{drawbridge}:s:s:p", "1-7", "b", "\u{1}\u{2}garbage")
    let next = try TestGateway(server)
    next.store.join("s")
    next.store.join("other")
    try await next.untilHeld("other")
    try await next.until("damaged") { _ in next.store.state.damage?.contains("'s' is damaged") == true }
    #expect(next.state.local["s"] == nil && next.store.state.failure == nil)
    #expect(next.metric("drawbridge_store_damaged_sessions") == 1)
  }

  /// The record looks as if a gateway of a newer version had been the holder.
  @Test func aGatewayDoesNotTakeASessionOfANewerFormat() async throws {
    let server = try await RedisProcess.server()
    let first = try TestGateway(server)
    try await first.becomeHolder()
    try await first.store([.push(RandomSession.push(1))])
    await first.close()
    let client = try TestClient(server)
    _ = try await client.call("HSET", "{drawbridge}:s:s:m", "format", "2")
    let next = try TestGateway(server)
    next.store.join("s")
    next.store.follow("s")
    try await next.becomeHolder("other")
    // After ten more heartbeats, the gateway has seen the record.
    let beats = next.metric("drawbridge_store_script_seconds_count{script=\"heartbeat\"}")
    try await next.until("seen") { _ in
      next.metric("drawbridge_store_script_seconds_count{script=\"heartbeat\"}") > beats + 10
    }
    #expect(next.state.local["s"] == nil && next.state.copies["s"]?.last ?? 0 == 0)
    #expect(next.store.state.damage == nil && next.store.state.failure == nil)
    _ = try await client.call("HSET", "{drawbridge}:s:s:m", "format", "1")
    _ = try await client.call("PUBLISH", "{drawbridge}:s:s:n", "2")
    #expect(try await next.untilHeld().restored.log.nextPush == 2)
    await next.close()
  }

  /// The record is read once, not repeatedly.
  @Test func aSessionWithADamagedRecordIsNotUsed() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    try await gateway.becomeHolder()
    try await gateway.store([.push(RandomSession.push(1))])
    let client = try TestClient(server)
    _ = try await client.call("HSET", "{drawbridge}:s:s:m", "token", "garbage")
    _ = try gateway.submit([.push(RandomSession.push(2))])
    try await gateway.until("damaged") { _ in gateway.store.state.damage?.contains("'s' is damaged: its record") == true
    }
    #expect(gateway.state.losses == [.fault] && gateway.store.state.failure == nil)
    #expect(gateway.metric("drawbridge_store_damaged_sessions") == 1)
    await gateway.close()
  }

  /// An entry that does not follow the stored entries is a bug. Redis gets no part of a write that contains it, so
  /// earlier entries in the same write are lost, too.
  @Test func anEntryThatDoesNotFollowEndsTheTermAndIsNotStored() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    let journal = try await gateway.becomeHolder().journal
    try await gateway.store([.push(RandomSession.push(1))])
    let tickets = [2, 3, 7, 4].map { journal.note(contentsOf: [.push(RandomSession.push($0))]) }
    try await gateway.until("the outcomes are known") { _ in
      tickets.allSatisfy { journal.outcome(of: $0) != .pending }
    }
    // Each of the valid entries may have been in an earlier write, or in the write of the invalid entry.
    let stored = tickets.prefix { journal.outcome(of: $0) == .stored }.count
    #expect(stored <= 2 && tickets.dropFirst(stored).allSatisfy { journal.outcome(of: $0) == .failed })
    #expect(journal.hasEnded)
    try await gateway.until("the session is lost") { $0.losses == [.fault] }
    await gateway.close()
    let next = try TestGateway(server)
    #expect(try await next.becomeHolder().restored.log.nextPush == UInt64(2 + stored))
    await next.close()
  }

  // MARK: Several gateways

  @Test func aReleasedSessionIsTakenAtOnceByTheOtherGateway() async throws {
    let server = try await RedisProcess.server()
    // The tenure is longer than the test runs.
    let times = TenureTimes(lease: .minutes(10))
    let first = try TestGateway(server) { $0.times = times }
    try await first.becomeHolder()
    let second = try TestGateway(server) { $0.times = times }
    second.store.join("s")
    try await first.store([.push(RandomSession.push(1))])
    // Waits until the gateways have seen each other.
    try await second.until("seen") { _ in second.metric("drawbridge_store_heartbeat_age_seconds") > 0 }
    #expect(second.state.local.isEmpty)
    await first.close()
    let restored = try await second.untilHeld().restored
    #expect(restored.log.nextPush == 2 && restored.terms.count == 2)
    #expect(first.state.losses == [.released])
    await second.close()
  }

  @Test func aGatewayThatIsNotTheHolderKnowsTheHolder() async throws {
    let server = try await RedisProcess.server()
    let (first, observer) = (try TestGateway(server) { $0.address = "a:1" }, try TestGateway(server))
    try await first.becomeHolder()
    observer.store.join("s", mayAcquire: false)
    try await observer.until("found") { $0.holders["s"]?.gateway == first.store.gateway }
    // A client reads the session at the observer for a while. Afterwards, the observer must still find the next holder.
    observer.store.follow("s")
    observer.store.unfollow("s")
    await first.close()
    let second = try TestGateway(server) { $0.address = "b:1" }
    try await second.becomeHolder()
    try await observer.until("found") { $0.holders["s"]?.gateway == second.store.gateway }
    await second.close()
    try await observer.until("lost") { $0.holders["s"] == nil }
    #expect(observer.state.acquisitions == 0)
    observer.store.join("s")
    try await observer.untilHeld()
    await observer.close()
  }

  /// The first gateway cannot reach Redis for longer than its tenure. Entries that it submits afterwards are not
  /// stored.
  @Test func aGatewayWhoseSessionWasTakenStoresNothingMore() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let first = try TestGateway(server, port: proxy.port)
    try await first.becomeHolder()
    try await first.store([.push(RandomSession.push(1))])
    let journal = try #require(first.state.local["s"]).opened.journal
    let second = try TestGateway(server)
    second.store.join("s")
    proxy.freeze()
    let lost = journal.submit(.push(RandomSession.push(2)))
    try await second.untilHeld()
    #expect(first.state.losses == [.deadline] && !first.store.mayWrite)
    try await second.store([.push(RandomSession.push(2, size: 3))])
    proxy.thaw()
    try await first.until("fenced") { _ in journal.outcome(of: lost) == .failed }
    let expected = try second.model()
    await second.close()
    let restored = try await first.untilHeld().restored
    #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms))
    await first.close()
  }

  @Test func oneOfCompetingGatewaysBecomesTheHolder() async throws {
    let server = try await RedisProcess.server()
    var gateways = try (0..<3).map { _ in try TestGateway(server) }
    for (index, gateway) in gateways.enumerated() {
      gateway.store.join("s")
      // The first gateway sends a heartbeat before the other gateways have joined. They may thus see its heartbeat
      // before they send their own.
      if index == 0 { try await gateway.until("beats") { _ in gateway.store.mayWrite } }
    }
    for run in 1...2 {
      try await gateways[0].until("held") { _ in gateways.contains { $0.state.local["s"] != nil } }
      let holder = try #require(gateways.firstIndex { $0.state.local["s"] != nil })
      let restored = try gateways[holder].model()
      #expect(restored.terms.count == run)
      for number in restored.log.nextPush..<restored.log.nextPush + 20 {
        try await gateways[holder].store([.push(RandomSession.push(number))])
      }
      let expected = try gateways[holder].model()
      #expect(gateways.reduce(0) { $0 + $1.state.acquisitions } == 1)
      gateways[holder].kill()
      gateways.remove(at: holder)
      try await gateways[0].until("taken") { _ in gateways.contains { $0.state.local["s"] != nil } }
      let next = gateways.compactMap { $0.state.local["s"]?.opened.restored }
      #expect(next == [expected.reopened(next.first?.terms ?? [])], "run \(run)")
    }
    for gateway in gateways { await gateway.close() }
  }

  // MARK: Failures of Redis

  @Test func aShortStopOfRedisHasNoEffect() async throws {
    let server = try await RedisProcess.server()
    // The tenure is so long that it does not end on a busy machine.
    let times = TenureTimes(lease: .seconds(60))
    let gateway = try TestGateway(server) { $0.times = times }
    let journal = try await gateway.becomeHolder().journal
    server.signal(SIGSTOP)
    let ticket = try gateway.submit([.push(RandomSession.push(1))])
    try await gateway.until("a reply is overdue") { _ in
      gateway.metric("drawbridge_store_heartbeat_age_seconds") > 3 * times.interval.seconds
    }
    #expect(journal.outcome(of: ticket) != .stored)
    server.signal(SIGCONT)
    try await gateway.untilStored(ticket)
    #expect(gateway.state.losses.isEmpty && gateway.state.acquisitions == 1)
    await gateway.close()
  }

  @Test func aLongStopOfRedisClosesTheSessionWithoutLoss() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server)
    let journal = try await gateway.becomeHolder().journal
    server.signal(SIGSTOP)
    let ticket = try gateway.submit([.push(RandomSession.push(1)), .accepted(RandomSession.message(1))])
    try await gateway.until("lost") { $0.losses == [.deadline] }
    #expect(!gateway.store.mayWrite && journal.isFailed && !journal.showsUnstored)
    let late = journal.submit(.push(RandomSession.push(2)))
    #expect(journal.outcome(of: late) == .failed)
    server.signal(SIGCONT)
    let restored = try await gateway.untilHeld().restored
    #expect(journal.outcome(of: ticket) == .stored && journal.outcome(of: late) == .failed)
    #expect(restored.log.nextPush == 2 && restored.outbox.messages.count == 1 && restored.terms.count == 2)
    await gateway.close()
  }

  /// The holder has the whole state, and writes it again.
  @Test func anEmptyRedisGetsTheWholeSessionFromItsHolder() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server) {
      $0.times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
    }
    try await gateway.becomeHolder()
    var writer = RandomSession(seed: 3, opensTerms: false)
    for _ in 0..<20 { try await gateway.store(writer.nextEntries() + writer.nextEntries()) }
    server.stop()
    let ticket = try gateway.submit((0..<5).flatMap { _ in writer.nextEntries() })
    let empty = try await RedisProcess.server(after: server)
    try await gateway.untilStored(ticket)
    #expect(gateway.state.losses.isEmpty)
    let expected = try gateway.model()
    await gateway.close()
    let next = try TestGateway(empty)
    let restored = try await next.becomeHolder().restored
    #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms))
    await next.close()
  }

  /// Dropped pushes are not written again. Readers of the log and the next holder find where it continues.
  @Test(arguments: [40, 50] as [UInt64]) func pushesThatRedisLostMayHaveBeenDroppedMeanwhile(dropped: UInt64)
    async throws
  {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
    let gateway = try TestGateway(server, port: proxy.port) { $0.times = times }
    try await gateway.becomeHolder()
    let client = try TestClient(server)
    for number in 1...50 as ClosedRange<UInt64> {
      try await gateway.store([.push(RandomSession.push(number)), .gap(.upstream)])
    }
    let follower = try TestGateway(server) { $0.times = times }
    follower.store.follow("s")
    let early = try gateway.model()
    try await follower.until("current") { $0.copies["s"]?.equals(early) == true }
    try await gateway.store([.trimmed(before: dropped + 1), .accepted(RandomSession.message(1))])
    // Creates the state after the restoration of an old snapshot, which has 10 pushes.
    for number in 11...50 {
      for count in 0...1 { _ = try await client.call("XDEL", "{drawbridge}:s:s:p", "\(number)-\(count)") }
    }
    _ = try await client.call("XSETID", "{drawbridge}:s:s:p", "10-1")
    _ = try await client.call("HSET", "{drawbridge}:s:s:m", "sequence", "1")
    proxy.redirect(to: server.port)
    try await gateway.store([.accepted(RandomSession.message(2))])
    let expected = try gateway.model()
    let late = try TestGateway(server) { $0.times = times }
    late.store.follow("s")
    try await late.until("current") { $0.copies["s"]?.equals(expected) == true }
    try await gateway.store([.push(RandomSession.push(51))])
    let last = try gateway.model()
    for gateway in [follower, late] { try await gateway.until("current") { $0.copies["s"]?.equals(last) == true } }
    #expect(late.state.copies["s"]?.restarts == 1 && gateway.state.losses.isEmpty)
    await gateway.close()
    late.store.join("s")
    let restored = try await late.untilHeld().restored
    #expect(restored.trimmed(as: last) == last.reopened(restored.terms))
    for gateway in [follower, late] { await gateway.close() }
  }

  /// The connection ends together with a command. The holder cannot know whether the command was executed.
  @Test(arguments: [true, false]) func lostCommandsNeitherDuplicateNorLoseEntries(isExecuted: Bool) async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let gateway = try TestGateway(server, port: proxy.port) {
      $0.times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
    }
    proxy.lose(StoreScript.acquire.script.digest, isExecuted: isExecuted)
    try await gateway.becomeHolder()
    var writer = RandomSession(seed: 5, opensTerms: false)
    for script in [StoreScript.append, .append, .heartbeat, .append, .read] {
      try await gateway.store(writer.nextEntries())
      proxy.lose(script.script.digest, isExecuted: isExecuted)
      let first = try gateway.submit([writer.nextPushEntry()] + writer.nextEntries())
      // These entries are submitted while the outcome of the first entries is unknown.
      let second = try gateway.submit(writer.nextEntries() + [writer.nextPushEntry()])
      try await gateway.untilStored(first)
      try await gateway.untilStored(second)
    }
    #expect(gateway.state.losses.isEmpty)
    let expected = try gateway.model()
    proxy.lose(StoreScript.release.script.digest, isExecuted: isExecuted)
    await gateway.close()
    let next = try TestGateway(server)
    let restored = try await next.becomeHolder().restored
    #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms))
    await next.close()
  }

  // MARK: Limits

  @Test func manyPendingBytesPauseReadingAndRefuseMessages() async throws {
    let server = try await RedisProcess.server()
    let gateway = try TestGateway(server) { $0.times = TenureTimes(lease: .seconds(60), margin: .seconds(1)) }
    let journal = try await gateway.becomeHolder().journal
    server.signal(SIGSTOP)
    var number: UInt64 = 1
    var last: JournalTicket?
    var pausedAt = 0
    let content = ByteString([UInt8](repeating: 7, count: 1 << 20))
    while !journal.isFull {
      last = try gateway.submit([.push(StoredPush(number: number, time: 0, layout: 0, rendered: content))])
      number += 1
      if journal.mustPauseReading, pausedAt == 0 { pausedAt = Int(number) }
    }
    #expect((16...18).contains(pausedAt) && (64...66).contains(number))
    server.signal(SIGCONT)
    try await gateway.untilStored(try #require(last))
    #expect(!journal.isFull && !journal.mustPauseReading && gateway.store.submissions.pendingBytes == 0)
    await gateway.close()
    let next = try TestGateway(server)
    #expect(try await next.becomeHolder().restored.log.nextPush == number)
    await next.close()
  }

  // MARK: Followers

  @Test func aFollowerKeepsTheLogWhenTheHolderChanges() async throws {
    let server = try await RedisProcess.server()
    let follower = try TestGateway(server)
    var holder = try TestGateway(server)
    try await holder.becomeHolder()
    follower.store.follow("s")
    var writer = RandomSession(seed: 11, opensTerms: false)
    for _ in 0..<4 {
      for _ in 0..<10 { try holder.submit(writer.nextEntries()) }
      let last = try holder.submit([writer.nextPushEntry()])
      try await holder.untilStored(last)
      let model = try holder.model()
      try await follower.until("equal") { $0.copies["s"]?.equals(model) == true }
      await holder.close()
      holder = try TestGateway(server)
      try await holder.becomeHolder()
      let reopened = try holder.model()
      try await follower.until("equal") { $0.copies["s"]?.equals(reopened) == true }
    }
    await holder.close()
  }

  /// The follower is disconnected while pushes arrive and the holder changes.
  @Test func aFollowerCatchesUpAfterItsConnectionWasLost() async throws {
    let server = try await RedisProcess.server()
    let proxy = try TestProxy(to: server.port)
    let follower = try TestGateway(server, port: proxy.port)
    let holder = try TestGateway(server)
    try await holder.becomeHolder()
    follower.store.follow("s")
    try await holder.store([.push(RandomSession.push(1)), .gap(.upstream)])
    var model = try holder.model()
    try await follower.until("equal") { $0.copies["s"]?.equals(model) == true }
    proxy.freeze()
    for number in 2...50 as ClosedRange<UInt64> { try await holder.store([.push(RandomSession.push(number))]) }
    await holder.close()
    let next = try TestGateway(server)
    try await next.becomeHolder()
    try await next.store([.push(RandomSession.push(51))])
    model = try next.model()
    proxy.thaw()
    try await follower.until("equal") { $0.copies["s"]?.equals(model) == true }
    #expect(follower.state.copies["s"]?.restarts == 1)
    await next.close()
  }

  /// The follower has seen entries that a failover loses. It must drop them.
  @Test func aFollowerDropsPushesThatAFailoverLost() async throws {
    let primary = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let proxy = try TestProxy(to: primary.port)
    let follower = try TestGateway(primary, port: proxy.port)
    let holder = try TestGateway(primary, port: proxy.port)
    try await holder.becomeHolder()
    follower.store.follow("s")
    try await holder.store([.push(RandomSession.push(1))])
    let replica = try await RedisProcess.replica(of: primary)
    let client = try TestClient(replica)
    try await client.until("INFO", "replication") { $0.contains("master_link_status:up") }
    _ = try await client.call("REPLICAOF", "NO", "ONE")
    // The replica does not receive these pushes.
    for number in 2...5 as ClosedRange<UInt64> { try await holder.store([.push(RandomSession.push(number))]) }
    let lost = try holder.model()
    try await follower.until("equal") { $0.copies["s"]?.equals(lost) == true }
    holder.kill()
    proxy.redirect(to: replica.port)
    let next = try TestGateway(replica)
    let restored = try await next.becomeHolder().restored
    #expect(restored.mayHaveLostEntries && restored.log.nextPush == 2)
    try await next.store([.push(RandomSession.push(2, size: 3))])
    let model = try next.model()
    try await follower.until("equal") { $0.copies["s"]?.equals(model) == true }
    await next.close()
  }

  /// The holder is alive and brings the promoted replica up to date, so nothing is lost.
  @Test func aHolderBringsAPromotedReplicaUpToDate() async throws {
    let primary = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let proxy = try TestProxy(to: primary.port)
    let holder = try TestGateway(primary, port: proxy.port) {
      $0.times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
    }
    let follower = try TestGateway(primary, port: proxy.port)
    try await holder.becomeHolder()
    follower.store.follow("s")
    try await holder.store([.push(RandomSession.push(1))])
    let replica = try await RedisProcess.replica(of: primary)
    let client = try TestClient(replica)
    try await client.until("INFO", "replication") { $0.contains("master_link_status:up") }
    _ = try await client.call("REPLICAOF", "NO", "ONE")
    try await holder.store([.push(RandomSession.push(2)), .gap(.upstream), .accepted(RandomSession.message(1))])
    try await holder.store([.push(RandomSession.push(3))])
    var expected = try holder.model()
    try await follower.until("equal") { $0.copies["s"]?.equals(expected) == true }
    proxy.redirect(to: replica.port)
    // This push is written in one entry with the pushes that are written again.
    try await holder.store([.push(RandomSession.push(4))])
    #expect(holder.state.losses.isEmpty)
    expected = try holder.model()
    try await follower.until("equal") { $0.copies["s"]?.equals(expected) == true }
    #expect(follower.state.copies["s"]?.restarts == 1)
    await holder.close()
    let next = try TestGateway(replica)
    let restored = try await next.becomeHolder().restored
    #expect(restored == expected.reopened(restored.terms))
    await next.close()
  }

  /// Sentinel makes the old primary a replica only seconds after it has promoted the other server.
  @Test func gatewaysFollowAPlannedFailoverAtOnce() async throws {
    let primary = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let replica = try await RedisProcess.replica(of: primary)
    let sentinel = try await RedisProcess.sentinel(of: primary.port)
    try await sentinel.waitForLog("+slave")
    let holder = try TestGateway(primary) {
      var cache = TLSContextCache(fileTimeout: .seconds(5))
      $0.target = try TestGateway.sentinels([sentinel.port], with: &cache)
      $0.times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
    }
    try await holder.becomeHolder()
    try await holder.store([.push(RandomSession.push(1))])
    let old = try TestClient(primary)
    // Sentinel refuses this command until it has got information from the replica.
    try await TestClient(sentinel).until("SENTINEL", "FAILOVER", "main") { $0 == "+OK\r\n" }
    try await holder.until("at the new primary") { _ in holder.metric("drawbridge_store_histories_total") >= 2 }
    #expect(try await old.call("INFO", "replication").contains("role:master"))
    try await holder.store([.push(RandomSession.push(2))])
    #expect(holder.state.losses.isEmpty)
    let expected = try holder.model()
    await holder.close()
    let next = try TestGateway(replica)
    let restored = try await next.becomeHolder().restored
    #expect(restored == expected.reopened(restored.terms))
    await next.close()
  }

  /// The number of seeds. DRAWBRIDGE_REDIS_SEEDS sets a greater number.
  private static let seeds =
    ProcessInfo.processInfo.environment["DRAWBRIDGE_REDIS_SEEDS"].flatMap { UInt64($0) } ?? 3

  /// The holder and the follower have separate proxies, which lose data on its way.
  @Test(arguments: 1...seeds)
  func theNextHolderAndAFollowerHaveEverythingWhateverFails(seed: UInt64) async throws {
    let server = try await RedisProcess.server()
    let proxies = try (0..<2).map { _ in try TestProxy(to: server.port) }
    var random = SeededGenerator(seed: seed)
    var writer = RandomSession(seed: seed, opensTerms: false)
    let follower = try TestGateway(server, port: proxies[1].port)
    follower.store.follow("s")
    var holder = try TestGateway(server, port: proxies[0].port)
    try await holder.becomeHolder()
    for round in 0..<12 {
      var last = try holder.submit([writer.nextPushEntry()])
      switch Int.random(in: 0..<5, using: &random) {
      case 0: proxies[0].lose(StoreScript.append.script.digest)
      case 1: proxies[1].lose(StoreScript.read.script.digest)
      case 2: proxies[Int.random(in: 0..<2, using: &random)].redirect(to: server.port)
      case 3:
        proxies[1].freeze()
        defer { proxies[1].thaw() }
        for _ in 0..<20 { last = try holder.submit(writer.nextEntries() + [writer.nextPushEntry()]) }
        try await holder.untilStored(last)
      default:
        try await holder.untilStored(last)
        let expected = try holder.model()
        if Bool.random(using: &random) { await holder.close() } else { holder.kill() }
        holder = try TestGateway(server, port: proxies[0].port)
        let restored = try await holder.becomeHolder().restored
        #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms), "round \(round)")
        last = try holder.submit([writer.nextPushEntry()])
      }
      for _ in 0..<5 { last = try holder.submit(writer.nextEntries() + [writer.nextPushEntry()]) }
      try await holder.untilStored(last)
      let model = try holder.model()
      // A gateway follows a session for a minute after the last request, so the test repeats the request, as a reader
      // would.
      follower.store.follow("s")
      try await follower.until("equal in round \(round)") { $0.copies["s"]?.equals(model) == true }
    }
    #expect(holder.state.losses.isEmpty)
    let expected = try holder.model()
    await holder.close()
    let next = try TestGateway(server)
    let restored = try await next.becomeHolder().restored
    #expect(restored.trimmed(as: expected) == expected.reopened(restored.terms))
    await next.close()
  }

  // MARK: WAIT

  @Test func withoutARequiredReplicaNothingIsStored() async throws {
    let primary = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let gateway = try TestGateway(primary) {
      $0.times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
      $0.waitReplicas = 1
    }
    gateway.store.join("s")
    try await gateway.until("short") { _ in gateway.metric("drawbridge_store_wait_short_total") > 0 }
    #expect(gateway.state.local.isEmpty)
    let replica = try await RedisProcess.replica(of: primary)
    try await gateway.untilHeld()
    try await gateway.store([.push(RandomSession.push(1))])
    replica.signal(SIGSTOP)
    let ticket = try gateway.submit([.push(RandomSession.push(2))])
    let before = gateway.metric("drawbridge_store_wait_short_total")
    try await gateway.until("short") { _ in gateway.metric("drawbridge_store_wait_short_total") > before + 1 }
    let journal = try #require(gateway.state.local["s"]).opened.journal
    #expect(journal.outcome(of: ticket) != .stored)
    try await gateway.until("failed") { _ in gateway.store.state.failure?.contains("replicas") == true }
    #expect(gateway.store.state.cause == .tooFewReplicas)
    replica.signal(SIGCONT)
    try await gateway.untilStored(ticket)
    await gateway.close()
  }

  /// Nothing else happens in the session. A gateway that has never seen the session starts after the loss.
  @Test func aSessionThatRedisHasLostIsStoredAgainByItsHolder() async throws {
    let server = try await RedisProcess.server()
    // A busy machine delays the holder's heartbeat by less than this interval.
    let change: (inout RedisStoreSettings) -> Void = {
      $0.times = TenureTimes(lease: .seconds(15), interval: .seconds(1))
    }
    let (first, second) = (try TestGateway(server, change), try TestGateway(server, change))
    try await first.becomeHolder()
    try await first.store([.push(RandomSession.push(1))])
    second.store.join("s")
    second.store.follow("s")
    try await second.until("current") { $0.copies["s"]?.isCurrent == true }
    _ = try await TestClient(server).call("FLUSHALL")
    let third = try TestGateway(server, change)
    third.store.join("s")
    third.store.follow("s")
    for gateway in [third, second] {
      try await gateway.until("current again") { $0.copies["s"]?.isCurrent == true }
      #expect(gateway.state.copies["s"]?.last == 1 && gateway.state.acquisitions == 0)
    }
    #expect(first.state.losses.isEmpty && first.state.acquisitions == 1)
    for gateway in [third, second, first] { await gateway.close() }
  }

  @Test func theDeadlineAppliesEvenIfItsTimerFiresEarly() async throws {
    let server = try await RedisProcess.server()
    // Only one heartbeat is sent. The loop is busy after the reply to the heartbeat, before it sets the timer.
    let gateway = try TestGateway(server) {
      $0.times = TenureTimes(lease: .seconds(3), margin: .seconds(1), interval: .seconds(600))
      $0.times.readingsBeforeCreation = 0
    }
    gateway.delay.withLock { $0 = 100_000 }
    gateway.store.join("s")
    // The session may be lost again before this test looks.
    try await gateway.until("held") { $0.acquisitions == 1 }
    try await gateway.until("lost", within: .seconds(20)) { $0.losses == [.deadline] }
    #expect(!gateway.store.mayWrite)
    gateway.kill()
  }

  @Test func aFollowerShowsNoPushThatAFailoverCanLose() async throws {
    let primary = try await RedisProcess.server { _, _ in ["--repl-diskless-sync-delay", "0"] }
    let replica = try await RedisProcess.replica(of: primary)
    let change: (inout RedisStoreSettings) -> Void = {
      $0.times = TenureTimes(lease: .seconds(30), margin: .seconds(1))
      $0.waitReplicas = 1
    }
    let (holder, follower) = (try TestGateway(primary, change), try TestGateway(primary, change))
    try await holder.becomeHolder()
    try await holder.store([.push(RandomSession.push(1))])
    follower.store.follow("s")
    try await follower.until("the first push") { $0.copies["s"]?.last == 1 }
    replica.signal(SIGSTOP)
    let ticket = try holder.submit([.push(RandomSession.push(2))])
    // Redis has the push and sends a notification long before the follower has waited for the replica twice.
    let before = follower.metric("drawbridge_store_wait_short_total")
    try await follower.until("short") { _ in follower.metric("drawbridge_store_wait_short_total") > before + 1 }
    #expect(follower.state.copies["s"]?.last == 1)
    replica.signal(SIGCONT)
    try await holder.untilStored(ticket)
    try await follower.until("the second push") { $0.copies["s"]?.last == 2 }
    await follower.close()
    await holder.close()
  }
}
