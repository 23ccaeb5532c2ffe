/// The type of a WebSocket message (RFC 6455 §5.6).
@usableFromInline
package enum MessageKind: UInt8, Hashable, Sendable {
  /// The payload is UTF-8.
  case text
  case binary

  @inlinable @inline(__always)
  package var isText: Bool { if case .text = self { true } else { false } }
}
