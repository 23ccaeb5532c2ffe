/// The number of one dial of a session, counted from 1.
///
/// Everything a socket reports carries the generation of its dial; what an older one reports is dropped, so a late
/// callback of a dead socket can never disturb its successor.
package struct Generation: Hashable, Comparable, Sendable, CustomStringConvertible {
  package let number: UInt64

  package init(_ number: UInt64) { self.number = number }

  /// No dial yet.
  package static var none: Generation { Generation(0) }

  package static func < (left: Generation, right: Generation) -> Bool { left.number < right.number }

  package var next: Generation { Generation(number + 1) }

  package var description: String { "#\(number)" }
}
