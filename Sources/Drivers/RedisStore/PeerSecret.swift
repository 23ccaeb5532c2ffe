import ByteStreams
import Replication

/// The secret of the gateways, which the first of them stores. It is read again from time to time: after a loss of all data, one that has the old
/// secret stores it again, and all continue with one.
struct PeerSecret {
  private(set) var text: String
  private var dueIn = 0

  /// With the default interval of heartbeats, every five seconds.
  private static var beats: Int { 20 }

  init(using generator: inout some RandomNumberGenerator) {
    var digits = ByteQueue()
    for _ in 0..<4 { digits.append(hexadecimal: generator.next() as UInt64, digits: 16) }
    text = digits.bytes.text()
  }

  /// The connection is another one, or Redis has lost its data.
  mutating func connected() { dueIn = 0 }

  /// Whether it is read with this heartbeat.
  mutating func isDue() -> Bool {
    dueIn -= 1
    guard dueIn < 0 else { return false }
    dueIn = Self.beats
    return true
  }

  /// What Redis has. Returns whether it is one.
  mutating func received(_ bytes: [UInt8]?) -> Bool {
    guard let bytes, (32...256).contains(bytes.count), bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      return false
    }
    text = bytes.span.text()
    return true
  }
}
