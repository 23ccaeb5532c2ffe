/// Limits on the memory and the work that a peer can cause. Memory grows with the bytes that arrive, and never with the
/// length in a header.
///
/// Each comment says what is limited, which close code the peer gets above the limit, which limits other
/// implementations have ('Precedent'), and which attack the limit prevents ('Stops').
package struct WebSocketLimits: Hashable, Sendable {
  /// Bytes of one message, all fragments together, before and after decompression; above it 1009. Precedent: Python's
  /// websockets 1 MiB, aiohttp 4 MiB, ws (Node) 100 MiB. 16 MiB because exchanges send snapshots of several MiB. Stops:
  /// an endless message.
  package var messageBytes = 16 << 20

  /// Number of frames of one message; above it 1009. Precedent: Tomcat and Netty limit only the bytes. 131,072 because
  /// the Autobahn suite sends 65,536 in one message. Stops: endless empty fragments, which `messageBytes` does not
  /// count.
  package var fragments = 131_072

  /// The maximum ratio of decompressed to compressed size, for messages above `inflationFloor` bytes; above it 1009.
  /// Precedent: Apache's `DeflateInflateRatioLimit` 200. Stops: a small message that costs much memory.
  package var inflationRatio = 200

  /// Messages up to this many bytes may have any ratio, since a message of that size is acceptable anyway. DEFLATE
  /// compresses ten mebibytes of one letter by a factor of 1,030. The value is the default of `messageBytes`, so the
  /// ratio matters only if `messageBytes` is raised.
  package var inflationFloor = 16 << 20

  /// The number of pending pongs. Above it only the newest ping gets a pong, as RFC 6455 §5.5.3 allows. Sixteen because
  /// the Autobahn suite sends ten pings at once and counts the pongs. Stops: a flood of pings by a peer that does not
  /// read the pongs.
  package var pendingPongs = 16

  package init() {}

  /// The maximum size in bytes of a message decompressed from `compressedBytes`.
  func inflatedBytes(from compressedBytes: Int) -> Int {
    let (byRatio, overflow) = compressedBytes.multipliedReportingOverflow(by: inflationRatio)
    return overflow ? messageBytes : min(messageBytes, max(inflationFloor, byRatio))
  }
}
