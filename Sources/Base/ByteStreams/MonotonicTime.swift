/// A point in time on a monotonic clock, in nanoseconds since an unspecified origin.
///
/// Machines and codecs do not read the clock. They take a `MonotonicTime` as an argument, so a test can pass any value.
@frozen
@usableFromInline
package struct MonotonicTime: Hashable, Comparable, Sendable {
  @usableFromInline package var nanoseconds: UInt64

  @inlinable @inline(__always)
  package init(nanoseconds: UInt64) { self.nanoseconds = nanoseconds }

  /// The earliest value. Tests start from it.
  @inlinable package static var zero: MonotonicTime { MonotonicTime(nanoseconds: 0) }
  /// The latest value: a deadline that never expires.
  @inlinable package static var distantFuture: MonotonicTime { MonotonicTime(nanoseconds: .max) }

  // Written out, since the synthesised function is not inlined into other targets.
  @inlinable @inline(__always)
  package static func == (left: MonotonicTime, right: MonotonicTime) -> Bool { left.nanoseconds == right.nanoseconds }

  @inlinable @inline(__always)
  package static func < (left: MonotonicTime, right: MonotonicTime) -> Bool { left.nanoseconds < right.nanoseconds }

  /// The time `duration` later, clamped to the range of the type.
  @inlinable @inline(__always)
  package static func + (left: MonotonicTime, duration: TimeSpan) -> MonotonicTime {
    let (sum, overflow) = left.nanoseconds.addingReportingOverflow(UInt64(bitPattern: duration.nanoseconds))
    if duration.nanoseconds >= 0 { return overflow ? .distantFuture : MonotonicTime(nanoseconds: sum) }
    return overflow ? MonotonicTime(nanoseconds: sum) : .zero
  }

  @inlinable @inline(__always)
  package static func - (left: MonotonicTime, duration: TimeSpan) -> MonotonicTime {
    left + TimeSpan(nanoseconds: 0 &- duration.nanoseconds)
  }

  /// The time from `right` to `left`; negative if `right` is later. Clamped to the range of `TimeSpan`.
  @inlinable @inline(__always)
  package static func - (left: MonotonicTime, right: MonotonicTime) -> TimeSpan {
    let (difference, borrowed) = left.nanoseconds.subtractingReportingOverflow(right.nanoseconds)
    if borrowed { return TimeSpan(nanoseconds: 0 &- Int64(clamping: right.nanoseconds &- left.nanoseconds)) }
    return TimeSpan(nanoseconds: Int64(clamping: difference))
  }
}

/// A duration in nanoseconds, in 64 bits. The standard library's `Duration` has 128.
@frozen
@usableFromInline
package struct TimeSpan: Hashable, Comparable, Sendable {
  @usableFromInline package var nanoseconds: Int64

  @inlinable @inline(__always)
  package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  @inlinable package static var zero: TimeSpan { TimeSpan(nanoseconds: 0) }
  package static func nanoseconds(_ count: Int64) -> TimeSpan { TimeSpan(nanoseconds: count) }
  // Counts may come from a peer, so values outside the range (±292 years) are clamped.
  package static func microseconds(_ count: Int64) -> TimeSpan { TimeSpan(nanoseconds: 1_000) * count }
  package static func milliseconds(_ count: Int64) -> TimeSpan { TimeSpan(nanoseconds: 1_000_000) * count }
  package static func seconds(_ count: Int64) -> TimeSpan { TimeSpan(nanoseconds: 1_000_000_000) * count }
  package static func minutes(_ count: Int64) -> TimeSpan { .seconds(60) * count }
  package static func hours(_ count: Int64) -> TimeSpan { .seconds(3600) * count }

  /// Seconds with a fraction, for reports.
  package var seconds: Double { Double(nanoseconds) / 1e9 }
  /// Whole milliseconds, rounded up so that a kernel wait does not end too early.
  package var millisecondsRoundedUp: Int64 {
    nanoseconds / 1_000_000 + (nanoseconds % 1_000_000 > 0 ? 1 : 0)
  }

  @inlinable @inline(__always)
  package static func == (left: TimeSpan, right: TimeSpan) -> Bool { left.nanoseconds == right.nanoseconds }
  @inlinable @inline(__always)
  package static func < (left: TimeSpan, right: TimeSpan) -> Bool { left.nanoseconds < right.nanoseconds }
  @inlinable @inline(__always)
  package static func + (left: TimeSpan, right: TimeSpan) -> TimeSpan {
    let (sum, overflow) = left.nanoseconds.addingReportingOverflow(right.nanoseconds)
    return TimeSpan(nanoseconds: overflow ? (left.nanoseconds > 0 ? .max : .min) : sum)
  }
  @inlinable @inline(__always)
  package static func - (left: TimeSpan, right: TimeSpan) -> TimeSpan {
    left + TimeSpan(nanoseconds: right.nanoseconds == .min ? .max : -right.nanoseconds)
  }
  package static func * (left: TimeSpan, factor: Int64) -> TimeSpan {
    let (product, overflow) = left.nanoseconds.multipliedReportingOverflow(by: factor)
    return TimeSpan(nanoseconds: overflow ? ((left.nanoseconds > 0) == (factor > 0) ? .max : .min) : product)
  }
  package static func / (left: TimeSpan, divisor: Int64) -> TimeSpan {
    TimeSpan(nanoseconds: left.nanoseconds / divisor)
  }
}
