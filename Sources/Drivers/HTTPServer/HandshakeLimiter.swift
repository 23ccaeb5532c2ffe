import Synchronization

/// Limits the TLS handshakes in progress, over all loops.
///
/// OpenSSL allocates what the first message of a client announces, before it arrives: a handshake that has only begun may cost 120 KiB.
final class HandshakeLimiter: Sendable {
  /// Together at most about 240 MiB. More than arrive within a usual round trip, since the computations of each handshake limit their rate.
  static var maximum: Int { 2_048 }

  private let count = Atomic(0)

  /// Counts a handshake that begins. Returns false if there are too many.
  func begin() -> Bool {
    guard count.add(1, ordering: .relaxed).newValue > Self.maximum else { return true }
    end()
    return false
  }

  /// A counted handshake is complete, or its connection has ended.
  func end() { count.subtract(1, ordering: .relaxed) }
}
