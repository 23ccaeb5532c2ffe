import ByteStreams

/// The pushes that `drawbridge work` has received and not settled: the running commands, and the settlements that must
/// be sent. The type has no side effects.
struct WorkQueue {
  /// The delay of a release grows with the deliveries of a push: 1 s, 2 s, 4 s, up to the longest.
  static let delays = (first: TimeSpan.seconds(1), longest: TimeSpan.minutes(5))
  /// A lease is extended three times in its duration, so that it does not expire if one request fails.
  private static let extensionsPerLease: Int64 = 3

  struct Job {
    let lease: String
    let push: String
    let deliveries: Int
    fileprivate var extendsAt: MonotonicTime
  }

  enum Settlement: Equatable {
    case acknowledge
    case release(after: TimeSpan)
  }

  /// A request to settle leases.
  struct Request: Equatable {
    var acknowledged: [String] = []
    var released: [String] = []
    var delay = TimeSpan.zero
    var extended: [String] = []

    var isEmpty: Bool { acknowledged.isEmpty && released.isEmpty && extended.isEmpty }

    /// The JSON of the request. Leases contain no characters that JSON must escape.
    var body: String {
      var members: [String] = []
      for (name, leases) in [("ack", acknowledged), ("release", released), ("extend", extended)] where !leases.isEmpty {
        members.append("\"\(name)\":[\(leases.map { Document.string($0) }.joined(separator: ","))]")
      }
      if delay > .zero { members.append("\"delay\":\"\(delay.text)\"") }
      return "{\(members.joined(separator: ","))}"
    }
  }

  let parallel: Int
  private let extensionInterval: TimeSpan
  /// Running commands, by process.
  private(set) var running: [Int32: Job] = [:]
  private var settlements: [(lease: String, settlement: Settlement)] = []

  /// - Parameter visibility: how long a lease lasts.
  init(parallel: Int, visibility: TimeSpan) {
    self.parallel = parallel
    extensionInterval = visibility / Self.extensionsPerLease
  }

  /// The number of commands that can be started.
  var free: Int { max(0, parallel - running.count) }
  var isEmpty: Bool { running.isEmpty && settlements.isEmpty }
  /// Whether there are settlements that must be sent to the gateway.
  var hasSettlements: Bool { !settlements.isEmpty }
  /// The time at which the next lease must be extended.
  var nextExtension: MonotonicTime { running.values.map(\.extendsAt).min() ?? .distantFuture }

  static func delay(afterDeliveries deliveries: Int) -> TimeSpan {
    min(delays.first * (1 << Int64(min(max(0, deliveries - 1), 30))), delays.longest)
  }

  mutating func start(_ process: Int32, lease: String, push: String, deliveries: Int, at now: MonotonicTime) {
    running[process] = Job(lease: lease, push: push, deliveries: deliveries, extendsAt: now + extensionInterval)
  }

  /// Called when a command has ended. Returns its job, and if the command has failed, the delay until the push is
  /// delivered again.
  mutating func end(_ process: Int32, isSuccess: Bool) -> (job: Job, delay: TimeSpan?)? {
    guard let job = running.removeValue(forKey: process) else { return nil }
    let delay = isSuccess ? nil : Self.delay(afterDeliveries: job.deliveries)
    settlements.append((job.lease, delay.map { .release(after: $0) } ?? .acknowledge))
    return (job, delay)
  }

  /// Gives back a push that no command will handle, so that other workers get it at once.
  mutating func giveBack(_ lease: String) { settlements.append((lease, .release(after: .zero))) }

  /// Returns the next request to send. All releases in a request have the same delay. Releases with another delay
  /// follow in later requests.
  func request(at now: MonotonicTime) -> Request {
    var request = Request()
    var delay: TimeSpan?
    for (lease, settlement) in settlements {
      switch settlement {
      case .acknowledge: request.acknowledged.append(lease)
      case .release(let span) where delay == nil || delay == span:
        delay = span
        request.released.append(lease)
      case .release: break
      }
    }
    request.delay = delay ?? .zero
    request.extended = running.values.filter { $0.extendsAt <= now }.map(\.lease).sorted()
    return request
  }

  /// Called when the gateway has responded to the request. The result for each lease is final.
  ///
  /// - Parameter lost: the leases that are not valid any more. They are not extended again.
  mutating func sent(_ request: Request, lost: Set<String>, at now: MonotonicTime) {
    let settled = Set(request.acknowledged + request.released)
    settlements.removeAll { settled.contains($0.lease) }
    for (process, job) in running where request.extended.contains(job.lease) {
      running[process]?.extendsAt = lost.contains(job.lease) ? .distantFuture : now + extensionInterval
    }
  }
}
