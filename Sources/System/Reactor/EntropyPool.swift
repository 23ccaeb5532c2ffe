import Glibc

/// A buffer of random numbers from the kernel. Every masking key must be unpredictable (RFC 6455 §10.3). Without the
/// buffer, each number would cost a system call.
package struct EntropyPool: RandomNumberGenerator {
  /// getentropy(3) returns at most 256 bytes per call.
  private static var wordsPerCall: Int { 32 }

  private var words: [UInt64] = []
  private var position = 0

  package init() {}

  @inline(__always)
  package mutating func next() -> UInt64 {
    if position == words.count { refill() }
    position &+= 1
    return words[position &- 1]
  }

  private mutating func refill() {
    if words.isEmpty { words = Array(repeating: 0, count: Self.wordsPerCall) }
    position = 0
    let result = unsafe words.withUnsafeMutableBytes { unsafe getentropy($0.baseAddress.unsafelyUnwrapped, $0.count) }
    precondition(result == 0, "getentropy(3) failed")
  }
}
