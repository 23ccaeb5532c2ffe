import Glibc

/// Random numbers from the kernel, fetched some at a time: a masking key a message (RFC 6455 §10.3 wants them
/// unpredictable) would otherwise cost a system call each.
package struct EntropyPool: RandomNumberGenerator {
  /// 256 bytes are what one call gives at most.
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
    precondition(result == 0, "the kernel gives no random numbers")
  }
}
