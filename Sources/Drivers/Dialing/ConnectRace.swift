import ByteStreams
import Glibc
import Host
import Reactor

/// Connects to the first of several addresses that responds (Happy Eyeballs, RFC 8305). If an address has not responded
/// within 250 ms, the next address is tried in parallel. So a dead IPv6 route costs 250 ms, and not the timeout of the
/// phase.
package final class ConnectRace {
  /// RFC 8305 §5, 'Connection Attempt Delay'.
  static let attemptDelay = TimeSpan.milliseconds(250)

  /// Maximum number of addresses that are tried. A malicious name server may return thousands of addresses, to make the
  /// gateway scan other hosts.
  package static let addressLimit = 32

  enum Outcome {
    case connected(Channel, SocketAddress)
    /// The last error. `hasRoute` is false if there was no route to any address.
    case failed(SystemError, hasRoute: Bool)
    case cancelled
  }

  private let loop: LoopContext
  private let addresses: [SocketAddress]
  private let userTimeout: TimeSpan
  private let event: LoopEvent
  private var attempts: [ConnectAttempt] = []
  private var winner: ConnectAttempt?
  private var lastError = SystemError("connect", code: EHOSTUNREACH)
  private var hasRoute = false
  private var startsNextAtOnce = true
  private var isCancelled = false

  init(_ addresses: [SocketAddress], userTimeout: TimeSpan, loop: LoopContext) {
    self.addresses = Self.interleaved(addresses)
    self.userTimeout = userTimeout
    self.loop = loop
    event = LoopEvent(loop: loop)
  }

  /// Alternates the families, beginning with the family of the first address (RFC 8305 §4), up to `limit`.
  static func interleaved(_ addresses: [SocketAddress], limit: Int = addressLimit) -> [SocketAddress] {
    guard let first = addresses.first else { return [] }
    let preferred = addresses.filter { $0.isIPv6 == first.isIPv6 }
    let others = addresses.filter { $0.isIPv6 != first.isIPv6 }
    var result: [SocketAddress] = []
    for index in 0..<max(preferred.count, others.count) {
      if index < preferred.count { result.append(preferred[index]) }
      if index < others.count { result.append(others[index]) }
    }
    return Array(result.prefix(limit))
  }

  func run() async -> Outcome {
    // This breaks the reference cycle between the race and its attempts.
    defer {
      attempts = []
      winner = nil
    }
    var next = 0
    var nextStart = loop.now
    while true {
      if isCancelled { return .cancelled }
      if let winner {
        for loser in attempts where loser !== winner { loser.channel.close() }
        return .connected(winner.channel, winner.address)
      }
      if next < addresses.count, startsNextAtOnce || loop.now >= nextStart {
        startsNextAtOnce = false
        nextStart = loop.now + Self.attemptDelay
        start(addresses[next])
        next += 1
      } else if next == addresses.count, attempts.isEmpty {
        return .failed(lastError, hasRoute: hasRoute)
      } else {
        _ = await event.wait(until: next < addresses.count ? nextStart : .distantFuture)
      }
    }
  }

  /// Ends the race. Called on the loop, while `run()` waits.
  func cancel() {
    isCancelled = true
    for attempt in attempts { attempt.channel.close() }
    attempts = []
    event.signal()
  }

  private func start(_ address: SocketAddress) {
    do {
      let channel = try Sockets.connect(to: address, on: loop, userTimeout: userTimeout)
      let attempt = ConnectAttempt(channel: channel, address: address, race: self)
      attempts.append(attempt)
      loop.spawn(attempt)
    } catch {
      recordFailure(error)
    }
  }

  fileprivate func finished(_ attempt: ConnectAttempt, error code: Int32) {
    guard !isCancelled, winner == nil else {
      attempt.channel.close()
      return
    }
    if code == 0 {
      winner = attempt
    } else {
      attempt.channel.close()
      attempts.removeAll { $0 === attempt }
      recordFailure(SystemError("connect", code: code, subject: attempt.address.description))
    }
    event.signal()
  }

  private func recordFailure(_ error: SystemError) {
    lastError = error
    if error.code != ENETUNREACH, error.code != ENETDOWN { hasRoute = true }
    startsNextAtOnce = true
  }
}

/// The connection to one address of a race.
private final class ConnectAttempt: LoopTask {
  let channel: Channel
  let address: SocketAddress
  private let race: ConnectRace

  init(channel: Channel, address: SocketAddress, race: ConnectRace) {
    self.channel = channel
    self.address = address
    self.race = race
  }

  func run() async {
    switch await channel.writable() {
    case .ready: race.finished(self, error: channel.takeSocketError())
    case .closed, .deadline, .woken: break
    }
  }
}
