/// What a peer may make us hold or do. Memory grows with the bytes that arrive, never with what a header announces.
///
/// Each limit names what others do (its precedent) and the attack it stops.
package struct WebSocketLimits: Hashable, Sendable {
  /// Bytes of one message, its fragments together, counted before and after inflation; above it 1009. Precedent: Python's
  /// websockets 1 MiB, aiohttp 4 MiB, ws (Node) 100 MiB; 16 MiB because exchanges send snapshots of several. Stops: a
  /// message without end.
  package var messageBytes = 16 << 20

  /// Frames of one message; above it 1009. Precedent: Tomcat and Netty bound the bytes only. 131,072 because the Autobahn
  /// suite sends 65,536 in one message. Stops: empty fragments without end, which `messageBytes` does not count.
  package var fragments = 131_072

  /// How many times larger than its compressed form a message may become, beyond `inflationFloor` bytes; above it 1009.
  /// Precedent: Apache's `DeflateInflateRatioLimit` 200. Stops: a small message that costs much memory.
  package var inflationRatio = 200

  /// A message of up to this many bytes may have any ratio: what a message may always cost is no attack, and DEFLATE makes
  /// ten mebibytes of one letter 1,030 times smaller. It is the default of `messageBytes`, so the ratio bites where an
  /// operator allows larger messages.
  package var inflationFloor = 16 << 20

  /// Pings that are each answered; when more are owed, only the newest is (RFC 6455 §5.5.3 allows that from the second on).
  /// Sixteen because the Autobahn suite sends ten at once and counts the answers. Stops: a flood of pings by a peer that
  /// does not read the answers.
  package var owedPongs = 16

  package init() {}

  /// Bytes that a message may have which came in `compressedBytes`.
  func inflatedBytes(from compressedBytes: Int) -> Int {
    let (byRatio, overflow) = compressedBytes.multipliedReportingOverflow(by: inflationRatio)
    return overflow ? messageBytes : min(messageBytes, max(inflationFloor, byRatio))
  }
}
