import ByteStreams

/// The activity of a gateway since its start, and its state, at one moment.
struct HistorySample: Equatable {
  var time: MonotonicTime
  /// Messages received from all upstreams, and messages accepted from clients, since the start.
  var received: UInt64 = 0
  var accepted: UInt64 = 0
  var queued = 0
  /// Requests that wait for their responses.
  var held = 0
  var streams = 0
  /// The longest round trip of all sessions; nil if no session has measured a round trip.
  var roundTrip: TimeSpan?
}

/// The samples of the last ten minutes, for the plots of the status page. This type reads no clock.
///
/// A gateway keeps at most `capacity` samples, which are about 8 KiB, however many sessions it has.
struct GatewayHistory {
  /// The time between two samples. It is short enough to show a peak of a few seconds, and long enough that sums over
  /// 10,000 sessions are not computed too often.
  static var interval: TimeSpan { .seconds(5) }
  static var window: TimeSpan { .minutes(10) }
  /// The maximum number of samples: one per interval, and the sample before the first interval.
  static var capacity: Int { Int(window.seconds / interval.seconds) + 1 }

  /// The interval that ends with a sample.
  struct Point {
    let sample: HistorySample
    let receivedPerSecond: Double
    let acceptedPerSecond: Double
  }

  /// The samples, the oldest first.
  private var samples: [HistorySample] = []

  init() { samples.reserveCapacity(Self.capacity) }

  /// Appends a sample, and drops samples that are too old. The array is short, so the remaining samples are simply
  /// moved, and no ring buffer is needed.
  mutating func append(_ sample: HistorySample) {
    // While a process is stopped, it takes no samples. So a limit on the number of samples would not limit their age.
    let start = sample.time - Self.window
    let old = samples.prefix { $0.time < start }.count
    samples.removeFirst(max(old, samples.count + 1 - Self.capacity))
    samples.append(sample)
  }

  /// The intervals between the samples, oldest first.
  var points: [Point] {
    zip(samples, samples.dropFirst()).map { before, sample in
      let seconds = max((sample.time - before.time).seconds, 0.001)
      // A sum over sessions can be smaller than the previous sum, since sessions end while it is computed.
      func rate(_ count: KeyPath<HistorySample, UInt64>) -> Double {
        let (now, then) = (sample[keyPath: count], before[keyPath: count])
        return now > then ? Double(now - then) / seconds : 0
      }
      return Point(sample: sample, receivedPerSecond: rate(\.received), acceptedPerSecond: rate(\.accepted))
    }
  }
}
