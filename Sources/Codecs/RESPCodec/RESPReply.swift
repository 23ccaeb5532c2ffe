import ByteStreams

/// A reply of a Redis server in version 2 of its protocol.
package enum RESPReply: Hashable, Sendable {
  /// A status such as `OK`.
  case simple(String)
  /// An error. The first word is its kind: `READONLY You can't write against a read only replica.`
  case error(String)
  case integer(Int64)
  case bulk([UInt8])
  /// The nil string, or the nil array: a key or script result that does not exist.
  case null
  case array([RESPReply])

  /// The integer; nil for other kinds.
  package var integer: Int64? { if case .integer(let value) = self { value } else { nil } }

  /// The bytes of a string; nil for other kinds.
  package var bytes: [UInt8]? { if case .bulk(let bytes) = self { bytes } else { nil } }

  /// The elements of an array; nil for other kinds.
  package var elements: [RESPReply]? { if case .array(let elements) = self { elements } else { nil } }

  /// The text of a string or status, with invalid UTF-8 replaced by U+FFFD; nil for other kinds.
  package var text: String? {
    switch self {
    case .simple(let text): text
    case .bulk(let bytes): bytes.span.text()
    case .error, .integer, .null, .array: nil
    }
  }
}
