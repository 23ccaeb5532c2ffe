import ByteStreams

/// Limits on one process's connection attempts to one host.
package struct AttemptLimits: Sendable, Equatable {
  /// Attempts per second in the long run. A restarted server can handle far more handshakes, but it has many clients.
  package var perSecond = 20
  /// Attempts allowed at once after a quiet period.
  package var burst = 40
  /// Maximum number of concurrent attempts. It limits the sockets that wait for a host that responds slowly.
  package var concurrent = 64

  package init() {}
}

/// The connection attempts of all sessions of a process, per host: their rate, their number in progress, and pauses
/// (Retry-After). The caller decides what counts as a host: for sessions that clients create, it is the pair of a host
/// and a client.
///
/// A session that must wait gets a ticket with its own time, in the order of requests, and calls `admit` again at that
/// time. If ten thousand sessions lose one host, each waits with one timer, calls `admit` once more, and the attempts
/// are spread over time. The rate is stored as the time at which the next free slot begins (the virtual scheduling
/// algorithm of ITU-T I.371).
package struct HostAttemptLimiter: Sendable {
  /// Maximum number of hosts tracked. Without this limit, an upstream that redirects to new hosts again and again could
  /// make the table grow. The hosts with the earliest `burstAvailableAt` are evicted first.
  package static let hostLimit = 4096
  /// Minimum time between two overrides of a pause, so that an operator's script in a loop does not become an attack.
  static let overrideInterval = TimeSpan.seconds(1)
  /// How long after its slot a ticket may be used. A later use would exceed the rate at the time of that use.
  static let ticketLifetime = TimeSpan.seconds(1)

  /// The right to connect to `host` at `slot`.
  package struct Ticket: Sendable, Equatable {
    package let host: String
    package let slot: MonotonicTime
  }

  package enum Verdict: Sendable, Equatable {
    /// Connect, and call `ended` when the attempt is over, whatever its outcome.
    case go
    /// Call `admit` again with this ticket at its `slot`.
    case wait(Ticket)
  }

  private struct HostState {
    /// When a whole burst is available again.
    var burstAvailableAt = MonotonicTime.zero
    /// When the pause of the host ends. A ticket whose slot is earlier is void.
    var pausedUntil = MonotonicTime.zero
    /// The pause is not overridden again before this time.
    var nextOverride = MonotonicTime.zero
    var inProgress = 0
    /// The slots of returned tickets, in order. There are at most as many slots as sessions that have waited at the
    /// same time.
    var freeSlots: [MonotonicTime] = []
  }

  private let limits: AttemptLimits
  private let spacing: TimeSpan
  /// How far `burstAvailableAt` may be in the future for an attempt to start at once.
  private let slack: TimeSpan
  private var hosts: [String: HostState] = [:]

  package init(_ limits: AttemptLimits) {
    precondition(limits.perSecond > 0 && limits.burst > 0 && limits.concurrent > 0, "each limit must be positive")
    self.limits = limits
    // Rounded up, so that the rate is never exceeded.
    spacing = .nanoseconds((1_000_000_000 + Int64(limits.perSecond) - 1) / Int64(limits.perSecond))
    slack = spacing * Int64(limits.burst - 1)
  }

  /// Whether an attempt to `host` may start now. `ticket` is the ticket of the last `wait`, if any. `overridesPause`:
  /// whether an operator requested the attempt. Such an attempt does not wait for the end of a pause.
  package mutating func admit(
    _ host: String, _ ticket: Ticket?, overridesPause: Bool = false, now: MonotonicTime
  ) -> Verdict {
    var state = hosts[host] ?? HostState()
    defer { keep(state, host) }
    if overridesPause, now < state.pausedUntil, now >= state.nextOverride, state.inProgress < limits.concurrent {
      state.nextOverride = now + Self.overrideInterval
      state.inProgress += 1
      if let ticket, ticket.host == host { free(ticket.slot, &state, now: now) }
      return .go
    }
    if let ticket, ticket.host == host, ticket.slot >= state.pausedUntil, now <= ticket.slot + Self.ticketLifetime {
      if now < ticket.slot { return .wait(ticket) }
    } else {
      let slot = reserve(&state, now: now)
      if slot > now { return .wait(Ticket(host: host, slot: slot)) }
    }
    guard state.inProgress < limits.concurrent else {
      return .wait(Ticket(host: host, slot: reserve(&state, now: now + spacing)))
    }
    state.inProgress += 1
    return .go
  }

  /// Called when an attempt to this host is over: it led to a connection, failed, or was cancelled.
  package mutating func ended(_ host: String) {
    guard let state = hosts[host], state.inProgress > 0 else { return }
    hosts[host]?.inProgress = state.inProgress - 1
  }

  /// Pauses the host until `until`, as it requested (RFC 9110 §10.2.3). After the pause, attempts start at the rate,
  /// without a burst. If a burst were allowed, all sessions with the same Retry-After would return together.
  package mutating func pause(_ host: String, until: MonotonicTime) {
    var state = hosts[host] ?? HostState()
    state.pausedUntil = max(state.pausedUntil, until)
    state.burstAvailableAt = max(state.burstAvailableAt, until + slack)
    keep(state, host)
  }

  /// Returns a ticket that will not be used, so that another attempt gets its slot. Without this, each session that
  /// ends while it waits would delay the others by a slot.
  package mutating func giveBack(_ ticket: Ticket, now: MonotonicTime) {
    guard var state = hosts[ticket.host] else { return }
    free(ticket.slot, &state, now: now)
    hosts[ticket.host] = state
  }

  /// Number of hosts tracked.
  var count: Int { hosts.count }

  private func reserve(_ state: inout HostState, now: MonotonicTime) -> MonotonicTime {
    let end = max(now, state.burstAvailableAt - slack)
    if !state.freeSlots.isEmpty {
      let earliest = max(now, state.pausedUntil)
      state.freeSlots.removeAll { $0 < earliest }
      if let slot = state.freeSlots.first, slot < end {
        state.freeSlots.removeFirst()
        return slot
      }
    }
    state.burstAvailableAt = max(state.burstAvailableAt, end) + spacing
    return end
  }

  private func free(_ slot: MonotonicTime, _ state: inout HostState, now: MonotonicTime) {
    // The slot has passed, or a pause has voided it.
    guard slot > now, slot >= state.pausedUntil else { return }
    let index = state.freeSlots.firstIndex { $0 > slot } ?? state.freeSlots.count
    state.freeSlots.insert(slot, at: index)
    // A freed slot at the end of the schedule is not kept: the schedule is shortened instead.
    while let last = state.freeSlots.last, state.burstAvailableAt == last + slack + spacing {
      state.freeSlots.removeLast()
      state.burstAvailableAt = last + slack
    }
  }

  private mutating func keep(_ state: HostState, _ host: String) {
    if hosts[host] == nil, hosts.count >= Self.hostLimit { makeRoom() }
    hosts[host] = state
  }

  /// Evicts a quarter of the hosts at once, so that this function rarely runs.
  private mutating func makeRoom() {
    let kept = hosts.sorted { $0.value.burstAvailableAt > $1.value.burstAvailableAt }.prefix(Self.hostLimit / 4 * 3)
    hosts = Dictionary(uniqueKeysWithValues: kept.map { ($0.key, $0.value) })
  }
}
