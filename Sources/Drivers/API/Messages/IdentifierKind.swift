import ByteStreams
import Inbox

/// The kind of object that a client's id names, recognised by its prefix.
enum IdentifierKind {
  /// `d-`: a delivery.
  case delivery
  /// `p-`: a push or a cursor.
  case push
  case unknown

  init(_ id: Span<UInt8>) {
    self = id.starts(with: "d-") ? .delivery : id.starts(with: Cursor.prefix) ? .push : .unknown
  }
}
