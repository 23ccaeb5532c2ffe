import ByteStreams
import TestSupport
import Testing

@testable import Idempotency

@Suite struct IdempotencyTableTests {
  private typealias Table = IdempotencyTable

  private func key(_ number: Int) -> Table.Key {
    // Spreads the keys over the shards, like digests.
    var state = UInt64(truncatingIfNeeded: number) &* 0x9E37_79B9_7F4A_7C15
    state ^= state >> 29
    var bytes: [UInt8] = []
    for shift in stride(from: 56, through: 0, by: -8) {
      bytes.append(UInt8(truncatingIfNeeded: state >> UInt64(shift)))
    }
    return Table.Key((bytes + bytes).span)
  }

  private func acceptance(_ first: UInt64) -> Table.Acceptance {
    Table.Acceptance(first: first, batchCount: nil, kind: .text, position: 2 * first)
  }

  private func stored(_ number: Int) -> StoredKey {
    StoredKey(
      key: key(number), fingerprint: key(9), principal: Table.Key(high: 0, low: 0), acceptance: acceptance(7),
      accepted: 0, end: 0)
  }

  private func table(_ keys: Int = 8, perClient: Int = 8) -> Table {
    Table(Table.Limits(keys: keys, keysPerClient: perClient))
  }

  private let start = MonotonicTime.zero + .seconds(100)

  // MARK: Every state and input

  @Test func aFreeKeyIsUsedForTheFirstTime() {
    var table = table()
    #expect(table.begin(key(1), key(9), by: 0, now: start) == .first)
    #expect(table.count == 1)
  }

  @Test func aKeyInProgressIsNotSentTwice() {
    var table = table()
    _ = table.begin(key(1), key(9), by: 0, now: start)
    #expect(table.begin(key(1), key(9), by: 0, now: start) == .inProgress)
    #expect(table.begin(key(1), key(8), by: 0, now: start) == .different)
    // A key whose request is in progress does not expire. Only the request that began with the key can end it.
    #expect(table.begin(key(1), key(9), by: 0, now: start + Table.retention * 2) == .inProgress)
  }

  @Test func theTimeForWhichKeysAreRememberedOnlyIncreases() {
    var table = table()
    table.remember(for: Table.retention * 2)
    table.remember(for: .seconds(1))
    #expect(table.retention == Table.retention * 2)
    _ = table.begin(key(1), key(9), by: 0, now: start)
    table.accept(key(1), acceptance(7), now: start)
    let end = start + Table.retention * 2
    #expect(table.begin(key(1), key(9), by: 0, now: end - .milliseconds(1)) == .repeated(acceptance(7)))
    #expect(table.begin(key(1), key(9), by: 0, now: end) == .first)
  }

  @Test func aKeyThatIsAcceptedIsRepeated() {
    var table = table()
    _ = table.begin(key(1), key(9), by: 0, now: start)
    table.accept(key(1), acceptance(7), now: start)
    #expect(table.begin(key(1), key(9), by: 0, now: start) == .repeated(acceptance(7)))
    #expect(table.begin(key(1), key(8), by: 0, now: start) == .different)
    #expect(table.count == 1)
  }

  @Test func aKeyThatIsRefusedIsFreeAgain() {
    var table = table()
    _ = table.begin(key(1), key(9), by: 0, now: start)
    table.cancel(key(1))
    #expect(table.count == 0)
    // The key is free, even for a different request.
    #expect(table.begin(key(1), key(8), by: 0, now: start) == .first)
  }

  /// A gateway that becomes the holder of a session again restores the keys of the session. Requests with some of these
  /// keys may still wait at this gateway.
  @Test(arguments: [true, false]) func aKeyThatIsRestoredWhileItsRequestWaitsStaysAccepted(isAccepted: Bool) {
    var table = table()
    _ = table.begin(key(1), key(9), by: 0, now: start)
    _ = table.restore([
      (stored(1), start + .seconds(60))
    ])
    if isAccepted { table.accept(key(1), acceptance(7), now: start) } else { table.cancel(key(1)) }
    #expect(table.begin(key(1), key(9), by: 0, now: start) == .repeated(acceptance(7)))
    #expect(table.count == 1)
    #expect(table.begin(key(1), key(9), by: 0, now: start + .seconds(60)) == .first)
  }

  @Test func aKeyIsRememberedForItsTimeFromAcceptanceOn() {
    var table = table()
    _ = table.begin(key(1), key(9), by: 0, now: start)
    let accepted = start + .seconds(5)
    table.accept(key(1), acceptance(7), now: accepted)
    let end = accepted + Table.retention
    #expect(table.begin(key(1), key(9), by: 0, now: end - .nanoseconds(1)) == .repeated(acceptance(7)))
    #expect(table.begin(key(1), key(8), by: 0, now: end) == .first)
  }

  /// One call restores a limited number of keys, so that requests of other sessions can use the table in between.
  @Test func oneCallRestoresALimitedNumberOfKeys() {
    let count = 2 * Table.removalsPerCall + 1
    var table = table(count, perClient: count)
    var keys = (0..<count).map { (stored: stored($0), end: start + .seconds(60)) }[...]
    for calls in 1...3 {
      keys = table.restore(keys)
      #expect(table.count == min(count, calls * Table.removalsPerCall) && table.count + keys.count == count)
    }
    for number in 0..<count {
      #expect(table.begin(key(number), key(9), by: 0, now: start) == .repeated(acceptance(7)))
    }
  }

  // MARK: Expiry

  @Test func keysExpireWithoutFurtherRequests() {
    var table = table(100, perClient: 100)
    for number in 0..<100 {
      _ = table.begin(key(number), key(9), by: 0, now: start)
      if number < 99 { table.accept(key(number), acceptance(7), now: start) }
    }
    #expect(table.expire(now: start + Table.retention - .nanoseconds(1)) == false)
    #expect(table.count == 100)
    #expect(table.expire(now: start + Table.retention) == false)
    #expect(table.count == 1, "the key in progress")
  }

  @Test func oneCallRemovesALimitedNumberOfKeysAndFindsNoExpiredKey() {
    let count = 2 * Table.removalsPerCall + 1
    var table = table(count + 1, perClient: count + 1)
    // All keys are in one shard.
    let keys = (0..<count).map { number in
      Table.Key(([0, 0, 0, 0, 0, 0, UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 0, count: 8)).span)
    }
    for key in keys {
      _ = table.begin(key, self.key(9), by: 0, now: start)
      table.accept(key, acceptance(7), now: start)
    }
    let end = start + Table.retention
    #expect(table.begin(keys[count - 1], key(8), by: 0, now: end) == .first)
    #expect(table.count == count - Table.removalsPerCall)
    table.accept(keys[count - 1], acceptance(8), now: end)
    #expect(table.expire(now: end) == true)
    #expect(table.expire(now: end) == false)
    #expect(table.count == 1)
    // The key was accepted twice. The expiry of the first acceptance does not end the second acceptance.
    #expect(table.begin(keys[count - 1], key(8), by: 0, now: end) == .repeated(acceptance(8)))
  }

  // MARK: Limits

  @Test func atTheLimitNewKeysAreRefusedAndOldKeysStay() {
    var table = table(4)
    for number in 0..<4 {
      #expect(table.begin(key(number), key(9), by: UInt64(number), now: start) == .first)
      table.accept(key(number), acceptance(UInt64(number)), now: start + .seconds(Int64(number)))
    }
    #expect(table.begin(key(4), key(9), by: 0, now: start) == .full(until: start + Table.retention))
    #expect(table.begin(key(0), key(9), by: 0, now: start) == .repeated(acceptance(0)))
    // The oldest key may be in any shard.
    #expect(table.begin(key(4), key(9), by: 0, now: start + Table.retention) == .first)
    #expect(table.count == 4)
  }

  @Test func onePrincipalCannotUseUpTheKeys() {
    var table = table(8, perClient: 2)
    for number in 0..<2 { #expect(table.begin(key(number), key(9), by: 1, now: start) == .first) }
    // No request is accepted yet, so the time at which a key expires is not known.
    #expect(table.begin(key(2), key(9), by: 1, now: start) == .full(until: start + .seconds(1)))
    #expect(table.begin(key(2), key(9), by: 2, now: start) == .first)
    table.cancel(key(0))
    #expect(table.begin(key(3), key(9), by: 1, now: start) == .first)
  }

  /// Without authentication, each address counts as a client, and all clients together may use all keys.
  @Test func oneAddressCannotUseUpTheKeys() {
    var table = table(8, perClient: 8)
    for number in 0..<8 { #expect(table.begin(key(number), key(9), by: 1, now: start) == .first) }
    #expect(table.begin(key(8), key(9), by: 1, now: start) == .full(until: start + .seconds(1)))
    #expect(table.begin(key(8), key(9), by: 2, now: start) == .first)
    #expect(table.begin(key(9), key(9), by: 3, now: start) == .full(until: start + .seconds(1)))
  }

  // MARK: Against a model

  @Test(arguments: 0..<20)
  func agreesWithAModelOnRandomRequests(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var table = table(12, perClient: 5)
    var model: [Int: (fingerprint: Int, client: Int, end: MonotonicTime?, first: UInt64)] = [:]
    var now = start
    for step in 0..<1_000 {
      now = now + .seconds(Int64(random.next() % 60))
      model = model.filter { $0.value.end.map { $0 > now } ?? true }
      let (number, fingerprint) = (Int(random.next() % 24), Int(random.next() % 2))
      let client = 1 + number % 3
      if let pending = model.first(where: { $0.value.end == nil && random.next() % 2 == 0 })?.key {
        if random.next() % 2 == 0 {
          table.accept(key(pending), acceptance(UInt64(step)), now: now)
          model[pending]?.end = now + Table.retention
          model[pending]?.first = UInt64(step)
        } else {
          table.cancel(key(pending))
          model[pending] = nil
        }
      }
      let own = model.values.count { $0.client == client }
      let verdict = table.begin(key(number), key(1000 + fingerprint), by: UInt64(client), now: now)
      if let known = model[number] {
        let same: Table.Verdict = known.end == nil ? .inProgress : .repeated(acceptance(known.first))
        #expect(verdict == (known.fingerprint == fingerprint ? same : .different))
      } else if model.count >= (own == 0 ? 13 : 12) || own >= 5 {
        // The verdict contains a time in the future at which the client may try again.
        guard case .full(let until) = verdict else {
          Issue.record("\(verdict) at step \(step)")
          return
        }
        #expect(until > now)
      } else {
        #expect(verdict == .first)
        model[number] = (fingerprint, client, nil, 0)
      }
    }
  }
}
