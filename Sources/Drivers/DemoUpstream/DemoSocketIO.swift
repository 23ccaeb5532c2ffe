import ByteStreams
import SocketIO

/// The messages of the demo as a Socket.IO server (Engine.IO 4). Attachments are binary messages, and are echoed like
/// any message, after the packet that announces them.
enum DemoSocketIO {
  /// `interval` is the time between two pings.
  static func opening(_ interval: TimeSpan) -> String {
    let milliseconds = interval.millisecondsRoundedUp
    return
      #"0{"sid":"demo","upgrades":[],"pingInterval":\#(milliseconds),"pingTimeout":\#(4 * milliseconds),"maxPayload":1000000}"#
  }

  static func ticks(_ number: UInt64) -> [String] { ["2", #"42["tick",\#(number)]"#] }

  static func replies(to message: [UInt8]) -> [String] {
    guard message.first == UInt8(ascii: "4") else { return [] }
    var limits = SocketIOLimits()
    limits.attachments = 255
    let packet: SocketIOPacket
    do throws(SocketIOViolation) {
      packet = try SocketIOPacket(message.span, from: 1, limits)
    } catch {
      return ["1"]
    }
    func text(_ range: Range<Int>) -> String { String(decoding: message[range], as: UTF8.self) }
    let namespace = packet.namespace.isEmpty ? "" : text(packet.namespace) + ","
    switch packet.kind {
    case .connect: return [#"40\#(namespace){"sid":"demo"}"#]
    case .event, .binaryEvent:
      let count = packet.kind.isBinary ? "\(packet.attachments)-" : ""
      guard let id = packet.id, let elements = packet.elements else {
        return ["4\(packet.kind.rawValue)\(count)\(namespace)\(text(packet.data))"]
      }
      let kind: SocketIOPacket.Kind = packet.kind.isBinary ? .binaryAcknowledgement : .acknowledgement
      return ["4\(kind.rawValue)\(count)\(namespace)\(id)[\(text(elements.rest))]"]
    case .disconnect, .acknowledgement, .connectError, .binaryAcknowledgement: return []
    }
  }
}
