import ByteStreams
import Consumers

/// The outcome of an attempt to deliver a push.
package enum WebhookOutcome: Equatable, Sendable {
  /// A complete response. `retryAfter` is the value of Retry-After; nil if there is none.
  case response(status: Int, retryAfter: TimeSpan? = nil)
  /// No response in time. The text names the missing event and the timeout.
  case timeout(String)
  /// No response, for this reason.
  case failed(String)
}

/// The results by which attempts are counted.
package enum WebhookResult: String, CaseIterable, Sendable {
  case delivered
  /// Any status other than 2xx, 3xx and 410.
  case refused
  case redirected
  case gone
  case timeout
  case failed
}

/// The consequences of an attempt.
package struct WebhookVerdict: Equatable, Sendable {
  package let result: WebhookResult
  /// How to settle the lease.
  package let settlement: Settlement
  /// nil if the push was delivered.
  package let failure: WebhookFailure?
}

/// The failure of an attempt.
package struct WebhookFailure: Equatable, Sendable {
  package let result: WebhookResult
  /// The text contains no part of the URL except the host.
  package let detail: String
  /// The status of the response; nil if there was none.
  package let status: Int?
  /// The number of the push.
  package let push: UInt64
  package let attempt: UInt32
}

/// Decides when a webhook's pushes are attempted, and how to settle their leases after each attempt.
///
/// The machine has no clock, no randomness and no socket. The consumer owns the pushes, their order and the number of
/// their attempts.
package struct WebhookMachine: Sendable {
  /// The fraction by which the wait for the next attempt of a push varies, so that the pushes of an outage are not all
  /// repeated at once.
  private static let jitter = 0.2
  /// Limits of Retry-After. A second is the shortest time that the field can express, and an hour is long enough for
  /// any overload.
  private static let retryAfters = TimeSpan.seconds(1)...TimeSpan.hours(1)
  /// The shortest and the longest pause. The first failure after a success pauses all attempts for the shortest time.
  /// Each further failure doubles the pause. Without pauses, a receiver that is down would get the whole backlog as
  /// fast as it refuses connections.
  private static let pauses = TimeSpan.milliseconds(100)...TimeSpan.seconds(30)

  package private(set) var settings: WebhookSettings
  /// Whether the receiver has responded with 410 since the last reload.
  package private(set) var isDisabled = false
  /// No attempt begins before this time.
  package private(set) var pausedUntil = MonotonicTime.zero
  package private(set) var lastFailure: WebhookFailure?
  /// Number of attempts in progress.
  package private(set) var inProgress = 0
  /// Number of failures since the last success. A failure during a pause does not count.
  private var failuresInRow = 0
  /// For each push, the number of attempts that the receiver has postponed by `Retry-After` or 410. Such attempts do
  /// not count in the schedule.
  private var postponed: [UInt64: UInt32] = [:]
  /// Maximum number of pushes in `postponed`. When one more push is postponed, all entries are dropped. The earlier
  /// attempts then count in the schedule after all.
  private static let postponedLimit = 10_000
  /// After this many postponed attempts, a push waits longer than `Retry-After`. So the attempts that a consumer allows
  /// are not used up before `give_up_after`.
  private static let promptRetries: UInt32 = 100

  package init(_ settings: WebhookSettings) { self.settings = settings }

  /// Applies new settings. An attempt in progress is judged by the new settings.
  ///
  /// - Parameter isNewEndpoint: whether future requests go to another endpoint.
  package mutating func reload(_ settings: WebhookSettings, isNewEndpoint: Bool) {
    self.settings = settings
    isDisabled = false
    guard isNewEndpoint else { return }
    pausedUntil = .zero
    failuresInRow = 0
  }

  /// The number of attempts that may begin now.
  package func room(at now: MonotonicTime) -> Int {
    isDisabled || now < pausedUntil ? 0 : max(0, settings.concurrency - inProgress)
  }

  package mutating func begin() { inProgress += 1 }

  /// Ends an attempt. Returns how to settle its lease.
  ///
  /// - Parameters:
  ///   - lease: the lease of the push.
  ///   - age: the age of the push.
  ///   - isCurrent: whether the request went to the current endpoint. If not, its outcome says nothing about the
  ///     current receiver.
  package mutating func end(
    _ outcome: WebhookOutcome, of lease: Lease, age: TimeSpan, isCurrent: Bool = true, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> WebhookVerdict {
    inProgress -= 1
    let result = Self.result(of: outcome)
    guard result != .delivered else {
      if isCurrent { failuresInRow = 0 }
      postponed[lease.number] = nil
      return WebhookVerdict(result: result, settlement: .acknowledge, failure: nil)
    }
    let failure = failure(result, outcome, lease)
    if isCurrent {
      lastFailure = failure
      pause(after: outcome, now: now)
    }
    let settlement = settlement(after: outcome, of: lease, age: age, using: &generator)
    if settlement == .reject { postponed[lease.number] = nil }
    return WebhookVerdict(result: result, settlement: settlement, failure: failure)
  }

  private mutating func pause(after outcome: WebhookOutcome, now: MonotonicTime) {
    if case .response(410, _) = outcome {
      isDisabled = true
      return
    }
    // Attempts that fail at about the same time count as one failure.
    if now >= pausedUntil {
      pausedUntil = now + min(Self.pauses.lowerBound * (1 << min(failuresInRow, 16)), Self.pauses.upperBound)
      failuresInRow += 1
    }
    if case .response(_, let retryAfter?) = outcome {
      pausedUntil = max(pausedUntil, now + Self.granted(retryAfter))
    }
  }

  private mutating func settlement(
    after outcome: WebhookOutcome, of lease: Lease, age: TimeSpan, using generator: inout some RandomNumberGenerator
  ) -> Settlement {
    let before = postponed[lease.number] ?? 0
    switch outcome {
    case .response(410, _):
      postpone(lease.number)
      // The push is attempted again when a reload has enabled the webhook.
      return .release(.zero)
    case .response(_, let retryAfter?):
      postpone(lease.number)
      var delay = Self.granted(retryAfter)
      if before >= Self.promptRetries {
        let rest = ConsumerSettings.deliveries.upperBound - 2 * Self.promptRetries
        delay = max(delay, settings.giveUpAfter / Int64(rest))
      }
      return age + delay > settings.giveUpAfter && lease.attempt > 1 ? .reject : .release(delay)
    case .response, .timeout, .failed:
      let attempt = lease.attempt - min(before, lease.attempt - 1)
      guard attempt <= settings.retries.count else { return .reject }
      let factor = Double.random(in: 1 - Self.jitter...1 + Self.jitter, using: &generator)
      let time = settings.retries[Int(attempt) - 1]
      let delay = TimeSpan(nanoseconds: Int64(Double(time.nanoseconds) * factor))
      // If the receiver was down, a push may be too old at its first attempt. Such a push is still attempted twice.
      return age + delay > settings.giveUpAfter && attempt > 1 ? .reject : .release(delay)
    }
  }

  private static func granted(_ retryAfter: TimeSpan) -> TimeSpan {
    min(max(retryAfter, retryAfters.lowerBound), retryAfters.upperBound)
  }

  private mutating func postpone(_ number: UInt64) {
    if postponed.count >= Self.postponedLimit { postponed = [:] }
    postponed[number, default: 0] += 1
  }

  /// Abandons an attempt. Its lease is not settled, and expires.
  package mutating func abandon() { inProgress -= 1 }

  private static func result(of outcome: WebhookOutcome) -> WebhookResult {
    switch outcome {
    case .response(200..<300, _): .delivered
    case .response(300..<400, _): .redirected
    case .response(410, _): .gone
    case .response: .refused
    case .timeout: .timeout
    case .failed: .failed
    }
  }

  private func failure(_ result: WebhookResult, _ outcome: WebhookOutcome, _ lease: Lease) -> WebhookFailure {
    var status: Int?
    let detail: String
    switch outcome {
    case .response(let code, _):
      status = code
      detail =
        switch result {
        case .redirected: "status \(code): redirections are not followed: use the URL of the target"
        case .gone: "status 410: the webhook is disabled until the configuration is reloaded"
        default: "status \(code)"
        }
    case .timeout(let reason), .failed(let reason): detail = reason
    }
    return WebhookFailure(result: result, detail: detail, status: status, push: lease.number, attempt: lease.attempt)
  }
}
