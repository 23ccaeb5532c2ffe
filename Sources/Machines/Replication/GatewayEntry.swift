import ByteStreams

/// The entry of a gateway in the hash `gateways`: `name=value` pairs, separated by spaces.
///
/// Versions may run side by side, so unknown names are ignored.
package struct GatewayEntry: Hashable, Sendable {
  /// Incremented with each heartbeat. A gateway whose entry does not change is not alive.
  package var beat: UInt64
  /// The latest history in which all sessions of this gateway are settled: each of them was stamped, waits for a new
  /// term, or was given up.
  package var history: String
  /// How long the gateway keeps its sessions without a heartbeat.
  package var lease: TimeSpan
  /// The newest format of the store that the gateway reads.
  package var format: UInt32
  /// Whether the gateway is about to end, and acquires no sessions.
  package var isDraining: Bool
  /// The address at which other gateways reach this gateway, `host:port`.
  package var address: String
  /// A digest of the settings that must be the same at all gateways.
  package var configuration: String
  /// Gateways that this gateway has never reached at their addresses.
  package var unreachable: [GatewayID]

  package init(
    beat: UInt64 = 0, history: String, lease: TimeSpan = TenureTimes().lease, format: UInt32 = 1,
    isDraining: Bool = false, address: String = "", configuration: String = "",
    unreachable: [GatewayID] = []
  ) {
    self.beat = beat
    self.history = history
    self.lease = lease
    self.format = format
    self.isDraining = isDraining
    self.address = address
    self.configuration = configuration
    self.unreachable = unreachable
  }

  /// Maximum size of an entry, in bytes. The address is the largest part, and has at most 300 bytes. There is room for
  /// fields of later versions.
  package static let maximumTextLength = 1024

  /// No value contains a space.
  package func write(into output: inout ByteQueue) {
    output.append("beat=" as StaticString)
    output.append(decimal: beat)
    output.append(
      " history=\(history) lease=\(lease.nanoseconds / 1_000_000) format=\(format) draining=\(isDraining ? 1 : 0)")
    if !address.isEmpty { output.append(" address=\(address)") }
    if !configuration.isEmpty { output.append(" configuration=\(configuration)") }
    for (index, gateway) in unreachable.enumerated() {
      output.append(index == 0 ? " unreachable=" : "," as StaticString)
      gateway.write(into: &output)
    }
  }

  /// Returns nil if the text is too long, a field is malformed, or a field that every version writes is missing.
  package init?(_ text: Span<UInt8>) {
    guard text.count <= Self.maximumTextLength else { return nil }
    var beat: UInt64?
    self.init(history: "")
    var start = 0
    while start < text.count {
      let end = text.firstIndex(of: UInt8(ascii: " "), from: start) ?? text.count
      let field = text.extracting(start..<end)
      start = end + 1
      guard let equals = field.firstIndex(of: UInt8(ascii: "=")) else { return nil }
      let name = field.extracting(first: equals)
      let value = field.extracting(equals + 1..<field.count)
      if name.equals("beat") {
        guard let number = value.decimalValue() else { return nil }
        beat = UInt64(number)
      } else if name.equals("history") {
        guard value.isPrintable else { return nil }
        history = value.text()
      } else if name.equals("lease") {
        guard let milliseconds = value.decimalValue() else { return nil }
        lease = min(.milliseconds(Int64(clamping: milliseconds)), TenureTimes.longestTenure)
      } else if name.equals("format") {
        guard let number = value.decimalValue(), let format = UInt32(exactly: number) else { return nil }
        self.format = format
      } else if name.equals("draining") {
        isDraining = value.equals("1")
      } else if name.equals("address") {
        guard value.isPrintable else { return nil }
        address = value.text()
      } else if name.equals("configuration") {
        guard value.isPrintable else { return nil }
        configuration = value.text()
      } else if name.equals("unreachable") {
        var start = 0
        while start < value.count {
          let end = value.firstIndex(of: UInt8(ascii: ","), from: start) ?? value.count
          guard let gateway = GatewayID(value.extracting(start..<end)) else { return nil }
          unreachable.append(gateway)
          start = end + 1
        }
      }
    }
    guard let beat else { return nil }
    self.beat = beat
  }
}

extension Span<UInt8> {
  /// Whether all bytes are visible ASCII.
  var isPrintable: Bool {
    for index in indices where self[index] <= 0x20 || self[index] > 0x7E { return false }
    return true
  }
}
