/// How a message travels on a WebSocket (RFC 6455 §5.6), and so how it is shown.
@usableFromInline
package enum MessageKind: UInt8, Hashable, Sendable {
  /// UTF-8.
  case text
  case binary

  @inlinable @inline(__always)
  package var isText: Bool { if case .text = self { true } else { false } }
}
