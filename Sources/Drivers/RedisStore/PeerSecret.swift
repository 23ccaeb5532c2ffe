import ByteStreams
import Replication

/// The secret by which the gateways recognise each other. The first gateway stores it. All gateways read it again from
/// time to time. After Redis has lost all data, one gateway stores its secret again, and the other gateways adopt it.
struct PeerSecret {
  private(set) var text: String
  private var dueIn = 0

  /// Number of heartbeats between two reads of the secret. With the default interval, they take five seconds.
  private static var beats: Int { 20 }

  init(using generator: inout some RandomNumberGenerator) {
    var digits = ByteQueue()
    for _ in 0..<4 { digits.append(hexadecimal: generator.next() as UInt64, digits: 16) }
    text = digits.bytes.text()
  }

  /// Called after a new connection, and after Redis has lost its data.
  mutating func connected() { dueIn = 0 }

  /// Whether the secret is read with this heartbeat.
  mutating func isDue() -> Bool {
    dueIn -= 1
    guard dueIn < 0 else { return false }
    dueIn = Self.beats
    return true
  }

  /// Takes the stored secret. Returns whether it is valid.
  mutating func received(_ bytes: [UInt8]?) -> Bool {
    guard let bytes, (32...256).contains(bytes.count), bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      return false
    }
    text = bytes.span.text()
    return true
  }
}
