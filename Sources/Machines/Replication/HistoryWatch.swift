import ByteStreams

/// The present history of Redis, and the gateways that are seen in it.
///
/// A history is `master_replid` of the primary. It changes with each promotion and each restart, which may have lost the last writes. A session is
/// stamped with the history in which its holder has found it complete.
package struct HistoryWatch: Sendable {
  private struct Seen {
    /// nil: Redis has no entry of this gateway.
    var text: [UInt8]?
    var entry: GatewayEntry?
    /// Of the last entry that it had; nil: none could be read.
    var lease: TimeSpan?
    /// When a reply had this text first, in the present history.
    var since: MonotonicTime
    /// Whether this process has seen it change: the gateway lives, or has lived since.
    var hasChanged = false
  }

  package let own: GatewayID
  private let times: LeaseTimes
  /// Empty: never connected.
  package private(set) var history = ""
  /// When this process saw it first.
  private var since = MonotonicTime.zero
  /// Whether the entries were read in the present history.
  private var hasEntries = false
  /// How often the entries were read.
  package private(set) var readings: UInt64 = 0
  /// When this process found another history, or that Redis had lost its entry; nil: never.
  private var lossTime: MonotonicTime?
  private var gateways: [GatewayID: Seen] = [:]
  /// The longest lease of all gateways that were seen. It counts for those of which nothing is known.
  private var longestLease: TimeSpan
  /// The latest history in which each session of this gateway has had its turn. The gateway's entry has it.
  package private(set) var settledHistory = ""
  /// Whether there are more than `maximumGateways`.
  private var isOverfull = false

  /// Maximum number of entries that are looked at: far more than one Redis carries. With more, nothing is acquired that needs all of them.
  package static let maximumGateways = 1024

  package init(own: GatewayID, _ times: LeaseTimes = LeaseTimes()) {
    self.own = own
    self.times = times
    longestLease = times.lease
  }

  /// To be called with `INFO replication` of each new connection, and of each heartbeat. Returns whether the history is another one than before:
  /// each session is to be read again.
  package mutating func connected(to history: String, now: MonotonicTime) -> Bool {
    guard history != self.history else { return false }
    if !self.history.isEmpty { lossTime = now }
    self.history = history
    since = now
    hasEntries = false
    // A gateway of the last history is expected in this one, even if its entry was lost.
    for gateway in gateways.keys { gateways[gateway]?.since = now }
    return true
  }

  /// The entries in the reply to a heartbeat: those before it. Returns whether Redis has lost data in the present history, by FLUSHALL: each
  /// session is to be read again.
  @discardableResult
  package mutating func received(_ entries: [(gateway: GatewayID, text: [UInt8])], now: MonotonicTime) -> Bool {
    let hasLoss = hasEntries && isOwnMissing(from: entries, now: now)
    if hasLoss { lossTime = now }
    hasEntries = true
    readings += 1
    isOverfull = entries.count > Self.maximumGateways
    var absent = Set(gateways.keys)
    for (gateway, text) in entries.prefix(Self.maximumGateways) {
      absent.remove(gateway)
      guard gateways[gateway]?.text != text else { continue }
      let entry = GatewayEntry(text.span)
      let lease = entry?.lease ?? gateways[gateway]?.lease
      gateways[gateway] = Seen(
        text: text, entry: entry, lease: lease, since: now, hasChanged: gateways[gateway]?.text != nil)
    }
    for gateway in absent {
      if let last = gateways[gateway], last.text != nil {
        gateways[gateway] = Seen(text: nil, entry: nil, lease: last.lease, since: now)
      } else if isGone(gateway, now: now) {
        gateways[gateway] = nil
      }
    }
    longestLease = gateways.values.reduce(times.lease) { max($0, $1.lease ?? .zero) }
    return hasLoss
  }

  /// Whether the entry of this gateway is missing, which was there, and which nobody has deleted yet.
  private func isOwnMissing(from entries: [(gateway: GatewayID, text: [UInt8])], now: MonotonicTime) -> Bool {
    guard let last = gateways[own], last.text != nil, now < last.since + Self.keptGone else { return false }
    return !entries.contains { $0.gateway == own }
  }

  /// Each session that this gateway holds is settled now (`Holding.isSettled`). It acquires no other one of before this history without the
  /// comparisons that hold for everybody.
  package mutating func allAreSettled() { settledHistory = history }

  /// The entry of a gateway as it was read last.
  package func text(of gateway: GatewayID) -> [UInt8]? { gateways[gateway]?.text }

  package func entry(of gateway: GatewayID) -> GatewayEntry? { gateways[gateway]?.entry }

  /// Where the gateways are reached that are not gone.
  package func addresses(now: MonotonicTime) -> [GatewayID: String] {
    gateways.compactMapValues(\.entry?.address).filter { !$0.value.isEmpty && !isGone($0.key, now: now) }
  }

  /// Where the other gateways are reached whose heartbeats have arrived just now. A killed gateway is not among them, although it keeps its
  /// sessions for a lease.
  package func freshAddresses(now: MonotonicTime) -> [GatewayID: String] {
    fresh(now: now).compactMapValues { $0.address.isEmpty ? nil : $0.address }
  }

  /// Whether there are such gateways, and each of them has never reached this one.
  package func isUnreachable(now: MonotonicTime) -> Bool {
    let others = fresh(now: now)
    return !others.isEmpty && others.values.allSatisfy { $0.unreachable.contains(own) }
  }

  private func fresh(now: MonotonicTime) -> [GatewayID: GatewayEntry] {
    gateways.filter { gateway, seen in gateway != own && seen.hasChanged && now < seen.since + Self.freshTime }
      .compactMapValues(\.entry).filter { !$0.value.isDraining }
  }

  /// Four heartbeats.
  private static let freshTime = TimeSpan.seconds(1)

  /// The digests of the settings of other gateways that are not gone, and say it.
  package func otherConfigurations(now: MonotonicTime) -> [GatewayID: (configuration: String, address: String)] {
    var result: [GatewayID: (configuration: String, address: String)] = [:]
    for (gateway, seen) in gateways where gateway != own && !isGone(gateway, now: now) {
      guard let entry = seen.entry, !entry.configuration.isEmpty, !entry.isDraining else { continue }
      result[gateway] = (entry.configuration, entry.address)
    }
    return result
  }

  /// Whether the entry of a gateway has not changed for its lease and that of this gateway, in the present history. It has no valid deadline then.
  package func isGone(_ gateway: GatewayID, now: MonotonicTime) -> Bool {
    let seen = gateways[gateway]
    return hasEntries && now >= (seen?.since ?? since) + max(times.lease, seen?.lease ?? longestLease)
  }

  /// Whether each other gateway has had its turn to stamp what it holds, or is gone.
  package func haveOthersSettled(now: MonotonicTime) -> Bool {
    hasEntries && !isOverfull && gateways.allSatisfy { hasReported($0.key, $0.value) || isGone($0.key, now: now) }
  }

  /// Whether each other gateway has had its turn to stamp what it holds. None is lost with something that it alone had.
  package var haveOthersReported: Bool { hasEntries && !isOverfull && gateways.allSatisfy(hasReported) }

  private func hasReported(_ gateway: GatewayID, _ seen: Seen) -> Bool {
    gateway == own || seen.entry?.history == history
  }

  /// Whether a session that Redis does not have may be one that it has lost, and whose holder has not had its turn.
  package func mayHaveLostSessions(now: MonotonicTime) -> Bool {
    lossTime.map { now < $0 + longestLease } ?? false
  }

  /// Whether each holder whose session Redis had lost has had its turn since `readings` was this number.
  package func wereHoldersSeen(since readings: UInt64) -> Bool {
    self.readings >= readings + times.readingsBeforeCreation
  }

  /// The place of this gateway among those that can acquire a session, from 0.
  package func rank(for session: String, now: MonotonicTime) -> Int {
    var candidates = gateways.filter { $0.value.entry?.isDraining == false && !isGone($0.key, now: now) }.map(\.key)
    if !candidates.contains(own) { candidates.append(own) }
    return GatewayID.order(of: candidates, for: session).firstIndex(of: own) ?? 0
  }

  /// The gateway that a session is released to; nil: there is no other one.
  package func successor(for session: String, now: MonotonicTime) -> GatewayID? {
    let candidates = gateways.filter {
      $0.key != own && $0.value.entry?.isDraining == false && !isGone($0.key, now: now)
    }
    return GatewayID.order(of: candidates.keys, for: session).first
  }

  /// Entries to be deleted, each if it is still this text: those of gateways that ended long ago.
  package func forgettable(now: MonotonicTime) -> [(gateway: GatewayID, text: [UInt8])] {
    gateways.compactMap { gateway, seen in
      guard gateway != own, let text = seen.text, isGone(gateway, now: now),
        now >= seen.since + Self.keptGone + (seen.lease ?? longestLease)
      else { return nil }
      return (gateway, text)
    }.prefix(Self.maximumForgotten).map(\.self)
  }

  /// An entry is kept for so long after its lease, so that an operator sees which gateway has ended. While it has sessions, others must know its lease.
  private static let keptGone = TimeSpan.seconds(25)
  /// Per heartbeat, so that no script takes long.
  private static let maximumForgotten = 16
}
