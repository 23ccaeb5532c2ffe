import ByteStreams
import Inbox

/// What an id that a client sends refers to, by its prefix.
enum IdentifierKind {
  /// `d-`: a message that was sent.
  case delivery
  /// `p-`: a push, or a position among pushes.
  case push
  case unknown

  init(_ id: Span<UInt8>) {
    self = id.starts(with: "d-") ? .delivery : id.starts(with: Cursor.prefix) ? .push : .unknown
  }
}
