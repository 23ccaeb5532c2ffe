import ByteStreams

/// The present history of Redis, and the gateways that have entries in it.
///
/// The id of a history is `master_replid` of the primary. It changes with each promotion and each restart, and each of
/// these events may lose the last writes. A session is stamped with the history in which its holder has found it
/// complete.
package struct HistoryWatch: Sendable {
  private struct Seen {
    /// nil if Redis has no entry of this gateway.
    var text: [UInt8]?
    var entry: GatewayEntry?
    /// The `lease` in the last readable entry; nil if no entry was readable.
    var lease: TimeSpan?
    /// When a reply first had this text, in the present history.
    var since: MonotonicTime
    /// Whether this process has seen the entry change, which means that the gateway was alive.
    var hasChanged = false
  }

  package let own: GatewayID
  private let times: TenureTimes
  /// Empty before the first connection.
  package private(set) var history = ""
  /// When this process first saw the present history.
  private var since = MonotonicTime.zero
  /// Whether the entries were read in the present history.
  private var hasEntries = false
  /// The number of times that the entries were read.
  package private(set) var readings: UInt64 = 0
  /// When this process last found a new history, or the loss of its own entry; nil if never.
  private var lossTime: MonotonicTime?
  private var gateways: [GatewayID: Seen] = [:]
  /// The longest `lease` of all gateways that were seen. It is assumed for gateways whose `lease` is not known.
  private var longestLease: TimeSpan
  /// The latest history in which all sessions of this gateway were settled. It is published in the gateway's entry.
  package private(set) var settledHistory = ""
  /// Whether there are more than `maximumGateways` entries.
  private var isOverfull = false

  /// Maximum number of entries that are considered, far more than Redis can serve. With more entries, sessions whose
  /// acquisition needs all entries are not acquired.
  package static let maximumGateways = 1024

  package init(own: GatewayID, _ times: TenureTimes = TenureTimes()) {
    self.own = own
    self.times = times
    longestLease = times.lease
  }

  /// Must be called with the history of each new connection and each heartbeat (`INFO replication`). Returns whether
  /// the history has changed. If so, all sessions must be read again.
  package mutating func connected(to history: String, now: MonotonicTime) -> Bool {
    guard history != self.history else { return false }
    if !self.history.isEmpty { lossTime = now }
    self.history = history
    since = now
    hasEntries = false
    // A gateway whose entry was lost may write its entry again in this history. So no known gateway counts as gone
    // before its `lease` has passed again.
    for gateway in gateways.keys { gateways[gateway]?.since = now }
    return true
  }

  /// Called with the reply to a heartbeat: the entries as they were before this heartbeat. Returns whether Redis has
  /// lost data in the present history, by FLUSHALL. If so, all sessions must be read again.
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

  /// Whether the entry of this gateway is missing, although it was there and is too young for other gateways to delete
  /// it.
  private func isOwnMissing(from entries: [(gateway: GatewayID, text: [UInt8])], now: MonotonicTime) -> Bool {
    guard let last = gateways[own], last.text != nil, now < last.since + Self.keptGone else { return false }
    return !entries.contains { $0.gateway == own }
  }

  /// Called when all sessions of this gateway are settled (`Tenure.isSettled`). From then on, this gateway acquires
  /// sessions of earlier histories under the same conditions as all other gateways.
  package mutating func allAreSettled() { settledHistory = history }

  /// The text of a gateway's entry as it was read last.
  package func text(of gateway: GatewayID) -> [UInt8]? { gateways[gateway]?.text }

  package func entry(of gateway: GatewayID) -> GatewayEntry? { gateways[gateway]?.entry }

  /// The addresses of the gateways that are not gone.
  package func addresses(now: MonotonicTime) -> [GatewayID: String] {
    gateways.compactMapValues(\.entry?.address).filter { !$0.value.isEmpty && !isGone($0.key, now: now) }
  }

  /// The addresses of the other gateways with fresh heartbeats. A killed gateway is not among them, although it stays
  /// the holder of its sessions until its tenure expires.
  package func freshAddresses(now: MonotonicTime) -> [GatewayID: String] {
    fresh(now: now).compactMapValues { $0.address.isEmpty ? nil : $0.address }
  }

  /// Whether there are other gateways with fresh heartbeats, and none of them has ever reached this gateway.
  package func isUnreachable(now: MonotonicTime) -> Bool {
    let others = fresh(now: now)
    return !others.isEmpty && others.values.allSatisfy { $0.unreachable.contains(own) }
  }

  private func fresh(now: MonotonicTime) -> [GatewayID: GatewayEntry] {
    gateways.filter { gateway, seen in gateway != own && seen.hasChanged && now < seen.since + Self.freshTime }
      .compactMapValues(\.entry).filter { !$0.value.isDraining }
  }

  /// How long a heartbeat is fresh: four heartbeats at the default interval.
  private static let freshTime = TimeSpan.seconds(1)

  /// The published digests of the settings of other gateways that are not gone.
  package func otherConfigurations(now: MonotonicTime) -> [GatewayID: (configuration: String, address: String)] {
    var result: [GatewayID: (configuration: String, address: String)] = [:]
    for (gateway, seen) in gateways where gateway != own && !isGone(gateway, now: now) {
      guard let entry = seen.entry, !entry.configuration.isEmpty, !entry.isDraining else { continue }
      result[gateway] = (entry.configuration, entry.address)
    }
    return result
  }

  /// Whether the entry of a gateway has not changed in the present history for its `lease` and for the `lease` of this
  /// gateway. The deadline until which such a gateway may act as a holder has passed.
  package func isGone(_ gateway: GatewayID, now: MonotonicTime) -> Bool {
    let seen = gateways[gateway]
    return hasEntries && now >= (seen?.since ?? since) + max(times.lease, seen?.lease ?? longestLease)
  }

  /// Whether each other gateway has settled its sessions in the present history, or is gone.
  package func haveOthersSettled(now: MonotonicTime) -> Bool {
    hasEntries && !isOverfull && gateways.allSatisfy { hasReported($0.key, $0.value) || isGone($0.key, now: now) }
  }

  /// Whether each other gateway has settled its sessions in the present history. False if a gateway was gone before it
  /// had settled its sessions, because Redis may lack changes that the ended gateway had stored.
  package var haveOthersReported: Bool { hasEntries && !isOverfull && gateways.allSatisfy(hasReported) }

  private func hasReported(_ gateway: GatewayID, _ seen: Seen) -> Bool {
    gateway == own || seen.entry?.history == history
  }

  /// Whether a session that Redis lacks may be a lost session, whose holder has not restored it yet.
  package func mayHaveLostSessions(now: MonotonicTime) -> Bool {
    lossTime.map { now < $0 + longestLease } ?? false
  }

  /// Whether the entries were read so often since `readings` that each holder has noticed the loss of its session.
  package func wereHoldersSeen(since readings: UInt64) -> Bool {
    self.readings >= readings + times.readingsBeforeCreation
  }

  /// The rank of this gateway among the gateways that can acquire a session, from 0.
  package func rank(for session: String, now: MonotonicTime) -> Int {
    var candidates = gateways.filter { $0.value.entry?.isDraining == false && !isGone($0.key, now: now) }.map(\.key)
    if !candidates.contains(own) { candidates.append(own) }
    return GatewayID.order(of: candidates, for: session).firstIndex(of: own) ?? 0
  }

  /// The gateway that a session is released to; nil if there is no other gateway.
  package func successor(for session: String, now: MonotonicTime) -> GatewayID? {
    let candidates = gateways.filter {
      $0.key != own && $0.value.entry?.isDraining == false && !isGone($0.key, now: now)
    }
    return GatewayID.order(of: candidates.keys, for: session).first
  }

  /// The entries of gateways that ended long ago. They should be deleted unless their texts have changed.
  package func forgettable(now: MonotonicTime) -> [(gateway: GatewayID, text: [UInt8])] {
    gateways.compactMap { gateway, seen in
      guard gateway != own, let text = seen.text, isGone(gateway, now: now),
        now >= seen.since + Self.keptGone + (seen.lease ?? longestLease)
      else { return nil }
      return (gateway, text)
    }.prefix(Self.maximumForgotten).map(\.self)
  }

  /// How long an entry is kept after its `lease` has passed, so that an operator sees that the gateway has ended.
  /// Before the `lease` has passed, other gateways need the entry.
  private static let keptGone = TimeSpan.seconds(25)
  /// Maximum number of entries that one heartbeat deletes, so that no script takes long.
  private static let maximumForgotten = 16
}
