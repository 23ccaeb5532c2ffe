import ByteStreams
import Logging
import Replication

/// Conditions of Redis or the gateways that an operator should change. A condition is reported after it has lasted for
/// a while, and when it ends.
struct StoreConditions {
  struct Notice {
    let isWarning: Bool
    let text: StaticString
    let fields: [LogField]
  }

  private enum Kind: Hashable {
    case eviction
    case replicas
    case configuration(GatewayID)
    case unreachable(GatewayID)
    case ownAddress
    case upstream(GatewayID)
  }

  private struct Condition {
    let since: MonotonicTime
    var isReported = false
  }

  /// Time between two checks of the eviction policy, which an operator may change at any time.
  private static var memoryInterval: TimeSpan { .seconds(60) }
  /// How long replicas may be missing before the warning. The restart of a replica takes less time, and is no reason
  /// for a warning.
  private static var replicasPatience: TimeSpan { .seconds(10) }
  /// How long gateways may have different settings before the warning. The roll-out of a change usually takes less
  /// time. Gateways that have ended are no longer checked.
  private static var configurationPatience: TimeSpan { .seconds(60) }
  /// How long a gateway may be unreachable before the warning. A shorter failure may mean only that the gateway was
  /// killed between its last heartbeat and the attempt to connect to it.
  private static var unreachablePatience: TimeSpan { .seconds(1) }

  private var conditions: [Kind: Condition] = [:]
  private var nextMemory = MonotonicTime.zero

  /// Whether `INFO memory` must be read now.
  mutating func isMemoryDue(now: MonotonicTime) -> Bool {
    guard now >= nextMemory else { return false }
    nextMemory = now + Self.memoryInterval
    return true
  }

  /// - Parameter memory: the reply to `INFO memory`.
  mutating func observed(memory: String, now: MonotonicTime) -> Notice? {
    guard let policy = Self.field("maxmemory_policy", in: memory) else { return nil }
    return note(
      .eviction, policy != "noeviction", after: .zero, now: now,
      "Redis may evict stored data: set maxmemory-policy to noeviction", "Redis does not evict stored data",
      [.text("policy", PrintableText.escaped(String(policy.prefix(64))))])
  }

  /// - Parameters:
  ///   - replication: the reply to `INFO replication`.
  ///   - required: the number of replicas that must confirm each write.
  mutating func observed(replication: String, required: Int, now: MonotonicTime) -> Notice? {
    guard required > 0, let count = Self.field("connected_slaves", in: replication).flatMap({ Int($0) }) else {
      return nil
    }
    return note(
      .replicas, count <= required, after: Self.replicasPatience, now: now,
      "Redis has no spare replica: if it loses a replica, nothing is stored until the replica is back (store.wait_replicas)",
      "Redis has a spare replica again", [.number("replicas", count), .number("wait_replicas", required)])
  }

  /// - Parameters:
  ///   - own: the digest of the settings that must be the same at all gateways.
  ///   - others: the digests and addresses of the gateways with other settings.
  mutating func observed(
    _ own: String, _ others: [GatewayID: (configuration: String, address: String)], now: MonotonicTime
  ) -> [Notice] {
    for case .configuration(let gateway) in conditions.keys where others[gateway] == nil {
      conditions[.configuration(gateway)] = nil
    }
    return others.compactMap { gateway, other in
      note(
        .configuration(gateway), other.configuration != own, after: Self.configurationPatience, now: now,
        "another gateway has other settings for the sessions or another store.lease",
        "another gateway has the same settings again",
        [.text("gateway", text { gateway.write(into: &$0) }.span.text()), .text("address", other.address)])
    }
  }

  /// - Parameter unreachable: the gateways that send heartbeats, but that this gateway has never reached.
  mutating func observed(
    unreachable: [GatewayID: (address: String, reason: String)], now: MonotonicTime
  ) -> [Notice] {
    // A gateway that has ended or was reached needs no further log line.
    for case .unreachable(let gateway) in conditions.keys where unreachable[gateway] == nil {
      conditions[.unreachable(gateway)] = nil
    }
    return unreachable.compactMap { gateway, peer in
      note(
        .unreachable(gateway), true, after: Self.unreachablePatience, now: now,
        "this gateway cannot reach another gateway: requests for the sessions of that gateway fail here (check its listeners.peer_address, and firewalls)",
        "",
        [
          .text("gateway", text { gateway.write(into: &$0) }.span.text()), .text("address", peer.address),
          .text("reason", peer.reason),
        ])
    }
  }

  mutating func observed(ownAddress: String, isUnreachable: Bool, now: MonotonicTime) -> Notice? {
    note(
      .ownAddress, isUnreachable, after: Self.unreachablePatience, now: now,
      "no other gateway can reach this gateway: set listeners.peer_address to an address that the other gateways can reach",
      "other gateways can reach this gateway", [.text("address", ownAddress)])
  }

  mutating func observed(
    _ differences: [(gateway: GatewayID, address: String, UpstreamHosts.Difference)], now: MonotonicTime
  ) -> [Notice] {
    let gateways = Set(differences.map(\.gateway))
    let ended = conditions.keys.filter {
      if case .upstream(let gateway) = $0 { !gateways.contains(gateway) } else { false }
    }
    let ends = ended.compactMap { kind in
      note(kind, false, after: .zero, now: now, "", "another gateway connects to the same upstreams again", [])
    }
    return ends
      + differences.compactMap { gateway, address, difference in
        let fields: [LogField] = [
          .text("session", difference.session), .text("host", difference.own), .text("other_host", difference.other),
          .text("gateway", text { gateway.write(into: &$0) }.span.text()), .text("address", address),
        ]
        return note(
          .upstream(gateway), true, after: .zero, now: now,
          "another gateway with the same store.prefix connects a session to another host: let each installation have its own store.prefix",
          "", fields)
      }
  }

  private mutating func note(
    _ kind: Kind, _ isMet: Bool, after patience: TimeSpan, now: MonotonicTime, _ warning: StaticString,
    _ end: StaticString, _ fields: [LogField]
  ) -> Notice? {
    guard isMet else {
      let last = conditions.removeValue(forKey: kind)
      return last?.isReported == true ? Notice(isWarning: false, text: end, fields: fields) : nil
    }
    let condition = conditions[kind] ?? Condition(since: now)
    let isDue = !condition.isReported && now >= condition.since + patience
    conditions[kind] = Condition(since: condition.since, isReported: condition.isReported || isDue)
    return isDue ? Notice(isWarning: true, text: warning, fields: fields) : nil
  }

  private static func field(_ name: String, in information: String) -> Substring? {
    for line in information.split(whereSeparator: \.isNewline) where line.hasPrefix(name + ":") {
      return line.dropFirst(name.count + 1)
    }
    return nil
  }
}

extension RedisStoreDriver {
  func log(_ notices: [StoreConditions.Notice]) {
    for notice in notices { logger.log(notice.isWarning ? .warning : .info, notice.text, notice.fields) }
  }
}
