import ByteStreams

/// The id of a gateway: 48 random bits, drawn at its start, written as twelve hexadecimal digits.
package struct GatewayID: Hashable, Comparable, Sendable {
  package let value: UInt64

  package init(_ value: UInt64) { self.value = value & 0xFFFF_FFFF_FFFF }

  package init(using generator: inout some RandomNumberGenerator) { self.init(generator.next() as UInt64) }

  static let textLength = 12

  package func write(into output: inout ByteQueue) { output.append(hexadecimal: value, digits: Self.textLength) }

  /// Returns nil if the text is not in the form that `write` produces.
  package init?(_ text: Span<UInt8>) {
    guard text.count == Self.textLength, let value = text.hexadecimalValue() else { return nil }
    self.value = value
  }

  package static func < (left: GatewayID, right: GatewayID) -> Bool { left.value < right.value }

  /// The order in which the gateways try to acquire a session. The order differs per session (rendezvous hashing), so
  /// that the sessions of a gateway that has ended are spread over the other gateways. All gateways compute the same
  /// order without exchanging messages.
  package static func order(of gateways: some Sequence<GatewayID>, for session: String) -> [GatewayID] {
    // FNV-1a over the name, then the finaliser of MurmurHash3 with the id.
    let name = session.utf8Span.span.fnv1aHash()
    func weight(_ gateway: GatewayID) -> UInt64 {
      var mixed = name ^ gateway.value
      mixed = (mixed ^ (mixed >> 33)) &* 0xFF51_AFD7_ED55_8CCD
      mixed = (mixed ^ (mixed >> 33)) &* 0xC4CE_B9FE_1A85_EC53
      return mixed ^ (mixed >> 33)
    }
    return gateways.map { ($0, weight($0)) }.sorted { ($0.1, $0.0) > ($1.1, $1.0) }.map(\.0)
  }
}
