import ByteStreams
import HTTPServer
import Inbox

/// A cache of the latest batches of streams.
struct PreparedBatches {
  /// Everything that a batch depends on.
  struct Key: Equatable {
    let inbox: Epoch
    let start: ReadStart
    let options: MessageStream.Options
    /// The revision of the inbox (`SharedInbox.revision`), read before its messages.
    let revision: UInt64
  }

  struct Batch {
    /// The position after it.
    let cursor: Cursor
    /// Whether more can be sent now.
    let hasMore: Bool
    /// Number of messages in it.
    let messages: Int
  }

  /// A larger batch is one large message, which streams share in any case.
  private static var largest: Int { 64 << 10 }

  private var recent = RecentContents<Key, (batch: Batch, bytes: SharedBytes)>()

  /// Appends the batch for `key` to `content`.
  ///
  /// - Parameter read: reads the batch from the inbox if no other stream has done so.
  mutating func append(_ key: Key, to content: inout ResponseContent, _ read: () -> ReadResult) -> Batch {
    if let (batch, bytes) = recent.find(key) {
      content.append(SharedSlice(bytes))
      return batch
    }
    let result = read()
    let batch = Batch(cursor: result.cursor, hasMore: result.more, messages: result.messages.count)
    let kept = recent.note(key) {
      var own = ResponseContent()
      key.options.format.write(result, into: &own)
      return own.count <= Self.largest ? (batch, SharedBytes(own.copyBytes())) : nil
    }
    if let kept {
      content.append(SharedSlice(kept.bytes))
    } else {
      key.options.format.write(result, into: &content)
    }
    return batch
  }
}
