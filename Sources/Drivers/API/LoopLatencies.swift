import ByteStreams
import Host
import Metrics
import Reactor

/// Measures requests, and deliveries of pushes, on one event loop. Each loop has its own part of each histogram.
///
/// The responses of a turn are sent at the end of the turn, so they are measured at that time. No clock is read for a
/// request: requests are only counted during the turn, and the loop knows the times at which the turn began and ended.
package final class LoopLatencies: TurnObserver {
  /// The kinds of requests. Requests that wait for data are not among them, since their clients choose how long to
  /// wait. They are measured as an `Interval` or not at all.
  enum Request: Int, CaseIterable {
    case send, poll, delivery, consumer, session, management, other
  }

  /// Intervals that began before the turn.
  enum Interval: Int, CaseIterable {
    /// From the arrival of a push until it is sent to a client that waited for it.
    case pushToPoll, pushToStream, pushToConsumer
    /// From a call to its reply.
    case call
    /// Like `Request.send`, but for messages that had to be stored before the response.
    case storedSend
  }

  /// Intervals that began at the same time, for example the waits of all polls that one push wakes.
  private struct Group {
    let interval: Interval
    let start: MonotonicTime
    var count = 1
  }

  /// Maximum number of groups kept until the end of the turn. Further groups are measured at once, and the clock is
  /// read for each.
  private static var maximumGroups: Int { 64 }

  private let turns: Histogram.Part
  private let requests: [Histogram.Part]
  private let intervals: [Histogram.Part]
  /// The number of responses to each kind of request in this turn, and the set of kinds for which this number is not
  /// zero.
  private var finished = InlineArray<7, Int>(repeating: 0)
  private var finishedKinds: UInt8 = 0
  private var groups: [Group] = []

  init(_ metrics: LatencyMetrics) {
    turns = metrics.turns.makePart()
    requests = metrics.requests.map { $0.makePart() }
    intervals = metrics.intervals.map { $0.makePart() }
    groups.reserveCapacity(Self.maximumGroups)
  }

  /// Counts a request that gets its response in the turn in which it was received.
  @inline(__always)
  func count(_ request: Request) {
    finished[request.rawValue] &+= 1
    finishedKinds |= 1 << UInt8(truncatingIfNeeded: request.rawValue)
  }

  /// Ends an interval with a response of this turn.
  func note(_ interval: Interval, since start: MonotonicTime) {
    if let last = groups.last, last.start == start, last.interval == interval {
      groups[groups.count - 1].count &+= 1
      return
    }
    if groups.count == Self.maximumGroups { observeGroups(at: ProcessInformation.monotonicTime()) }
    groups.append(Group(interval: interval, start: start))
  }

  package func turnEnded(from start: MonotonicTime, to end: MonotonicTime) {
    let duration = end - start
    let range = Histogram.range(of: duration)
    turns.observe(duration, in: range, count: 1)
    while finishedKinds != 0 {
      let kind = finishedKinds.trailingZeroBitCount
      finishedKinds &= finishedKinds &- 1
      requests[kind].observe(duration, in: range, count: finished[kind])
      finished[kind] = 0
    }
    if !groups.isEmpty { observeGroups(at: end) }
  }

  private func observeGroups(at end: MonotonicTime) {
    for group in groups { intervals[group.interval.rawValue].observe(end - group.start, count: group.count) }
    groups.removeAll(keepingCapacity: true)
  }
}

/// The histograms of requests and pushes. They have no label `session`: a thousand sessions would make tens of
/// thousands of series.
struct LatencyMetrics: Sendable {
  let turns: Histogram
  /// The histograms of the kinds of requests, in the order of `LoopLatencies.Request`.
  let requests: [Histogram]
  /// The histograms of the intervals, in the order of `LoopLatencies.Interval`.
  let intervals: [Histogram]

  init(_ registry: MetricsRegistry) {
    turns = registry.histogram(
      "drawbridge_loop_turn_seconds", "Time that turns of the event loops took. Whatever arrives meanwhile waits.")
    func request(_ kind: LoopLatencies.Request) -> Histogram {
      registry.histogram(
        "drawbridge_http_request_seconds",
        "Time from the complete request to its response, without requests that waited for data.",
        [("request", "\(kind)")])
    }
    requests = LoopLatencies.Request.allCases.map(request)
    intervals = LoopLatencies.Interval.allCases.map { interval in
      func push(to reader: String) -> Histogram {
        registry.histogram(
          "drawbridge_push_delivery_seconds",
          "Time from the arrival of a push until it was sent to a client that waited for it.", [("to", reader)])
      }
      return switch interval {
      case .pushToPoll: push(to: "poll")
      case .pushToStream: push(to: "stream")
      case .pushToConsumer: push(to: "consumer")
      case .call: registry.histogram("drawbridge_call_seconds", "Time from a call to its reply.")
      case .storedSend: request(.send)
      }
    }
  }
}
