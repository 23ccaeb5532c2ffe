/// The number of a connection attempt of a session, counted from 1.
///
/// Every report of a socket carries the generation of its attempt. Reports of older generations are dropped, so a late
/// callback of a dead socket cannot affect its successor.
package struct Generation: Hashable, Comparable, Sendable, CustomStringConvertible {
  package let number: UInt64

  package init(_ number: UInt64) { self.number = number }

  /// No attempt yet.
  package static var none: Generation { Generation(0) }

  package static func < (left: Generation, right: Generation) -> Bool { left.number < right.number }

  package var next: Generation { Generation(number + 1) }

  package var description: String { "#\(number)" }
}
