import ByteStreams

/// How often one process may dial one host.
package struct DialLimits: Sendable, Equatable {
  /// Dials a second in the long run: a server that restarts takes far more handshakes than this, and its clients are many.
  package var perSecond = 20
  /// Dials at once after a quiet time.
  package var burst = 40
  /// Dials that may be under way at once, however slowly the host answers.
  package var atOnce = 64

  package init() {}
}

/// The dials of all sessions of a process, host by host: a rate, a number under way, and times at which a host is left alone.
///
/// Who has to wait is given a ticket for a moment of its own, in the order of asking, and comes back then. So ten thousand
/// sessions that lost one host wait with one timer each, ask once each, and leave no crowd at the door. The rate is kept as the
/// moment at which the next free slot begins (the virtual scheduling algorithm of ITU-T I.371).
package struct HostDials: Sendable {
  /// Hosts that are accounted for. An upstream that redirects to ever new ones must not make this grow; those that
  /// are closest to rest are forgotten first.
  package static let hostLimit = 4096
  /// How often a hold may be overridden. An operator's script that asks all the time must not become an attack.
  static let overrideInterval = TimeSpan.seconds(1)
  /// How late a ticket may be used. A later one would add to the dials of another time.
  static let ticketLife = TimeSpan.seconds(1)

  /// The right to dial `host` at `slot`.
  package struct Ticket: Sendable, Equatable {
    package let host: String
    package let slot: MonotonicTime
  }

  package enum Verdict: Sendable, Equatable {
    /// Dial, and say `ended` when the dial is over, however it ended.
    case go
    /// Ask again with this ticket at its `slot`.
    case wait(Ticket)
  }

  private struct Line {
    /// When a whole burst may be dialled again.
    var restedAt = MonotonicTime.zero
    /// Tickets for a time before this are void.
    var heldUntil = MonotonicTime.zero
    /// Before this the hold is not overridden again.
    var nextOverride = MonotonicTime.zero
    var underWay = 0
  }

  private let limits: DialLimits
  private let spacing: TimeSpan
  /// How far `restedAt` may lie ahead for a dial at once.
  private let slack: TimeSpan
  private var lines: [String: Line] = [:]

  package init(_ limits: DialLimits) {
    precondition(limits.perSecond > 0 && limits.burst > 0 && limits.atOnce > 0, "a limit lets something through")
    self.limits = limits
    // Rounded up: the rate is an upper bound.
    spacing = .nanoseconds((1_000_000_000 + Int64(limits.perSecond) - 1) / Int64(limits.perSecond))
    slack = spacing * Int64(limits.burst - 1)
  }

  /// Whether `host` may be dialled now. `ticket`: what was answered the last time, if that was to wait. `overridesHold`: an
  /// operator asks for it, who need not wait for the end of a hold.
  package mutating func ask(
    _ host: String, _ ticket: Ticket?, overridesHold: Bool = false, now: MonotonicTime
  ) -> Verdict {
    var line = lines[host] ?? Line()
    defer { keep(line, host) }
    if overridesHold, now < line.heldUntil, now >= line.nextOverride, line.underWay < limits.atOnce {
      line.nextOverride = now + Self.overrideInterval
      line.underWay += 1
      return .go
    }
    if let ticket, ticket.host == host, ticket.slot >= line.heldUntil, now <= ticket.slot + Self.ticketLife {
      if now < ticket.slot { return .wait(ticket) }
    } else {
      let slot = reserve(&line, now: now)
      if slot > now { return .wait(Ticket(host: host, slot: slot)) }
    }
    guard line.underWay < limits.atOnce else {
      let slot = max(now + spacing, reserve(&line, now: now))
      return .wait(Ticket(host: host, slot: slot))
    }
    line.underWay += 1
    return .go
  }

  /// A dial of this host is over: it has led to a connection, failed, or was given up.
  package mutating func ended(_ host: String) {
    guard let line = lines[host], line.underWay > 0 else { return }
    lines[host]?.underWay = line.underWay - 1
  }

  /// The host asked to be left alone until then (RFC 9110 §10.2.3). After it dials begin at the rate, without a burst: all who
  /// were told the same moment would come at it together.
  package mutating func hold(_ host: String, until: MonotonicTime) {
    var line = lines[host] ?? Line()
    line.heldUntil = max(line.heldUntil, until)
    line.restedAt = max(line.restedAt, until + slack)
    keep(line, host)
  }

  /// Hosts accounted for.
  var count: Int { lines.count }

  private func reserve(_ line: inout Line, now: MonotonicTime) -> MonotonicTime {
    let slot = max(now, line.restedAt - slack)
    line.restedAt = max(line.restedAt, slot) + spacing
    return slot
  }

  private mutating func keep(_ line: Line, _ host: String) {
    if lines[host] == nil, lines.count >= Self.hostLimit { makeRoom() }
    lines[host] = line
  }

  /// A quarter at once, so that it is seldom done.
  private mutating func makeRoom() {
    let restless = lines.sorted { $0.value.restedAt > $1.value.restedAt }.prefix(Self.hostLimit / 4 * 3)
    lines = Dictionary(uniqueKeysWithValues: restless.map { ($0.key, $0.value) })
  }
}
