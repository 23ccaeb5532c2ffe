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
    /// The revision of the inbox (`ConcurrentInbox.revision`), read before its messages.
    let revision: UInt64
  }

  struct Batch {
    /// The position after the batch.
    let cursor: Cursor
    /// Whether further messages can be sent now.
    let hasMore: Bool
    /// Number of messages in the batch.
    let messages: Int
    /// When the first message arrived.
    let arrival: MonotonicTime?
  }

  /// The capacity allows for several keys: streams that one push wakes may differ in their format, topics and
  /// positions.
  private var recent = RecentContents<Key, (batch: Batch, bytes: ByteString)>(capacity: 16)
  private var largeLines = SingleLines()

  /// Appends the batch for `key` to `content`.
  ///
  /// - Parameter read: reads the batch from the inbox if no other stream has done so.
  mutating func append(_ key: Key, to content: inout ResponseContent, _ read: () -> ReadResult) -> Batch {
    if let (batch, bytes) = recent.find(key) {
      content.append(ByteSlice(bytes))
      return batch
    }
    let result = read()
    // A batch of one large message is not kept, since that would need a copy. Streams send a large message without a
    // copy.
    if !key.options.omitsData, let first = result.messages.first, first.rendered.count > StreamLimits.batchBytes {
      return Self.write(result, key, &largeLines, into: &content)
    }
    var lines = SingleLines()
    let kept = recent.note(key) {
      var own = ResponseContent()
      let batch = Self.write(result, key, &lines, into: &own)
      return (batch, ByteString(own.copyBytes()))
    }
    guard let kept else { return Self.write(result, key, &lines, into: &content) }
    content.append(ByteSlice(kept.bytes))
    return kept.batch
  }

  private static func write(
    _ result: ReadResult, _ key: Key, _ lines: inout SingleLines, into content: inout ResponseContent
  ) -> Batch {
    let count = key.options.format.write(result, omittingData: key.options.omitsData, &lines, into: &content)
    let arrival = result.messages.first?.arrival
    guard count < result.messages.count else {
      return Batch(cursor: result.cursor, hasMore: result.more, messages: count, arrival: arrival)
    }
    let end = Cursor(
      epoch: result.cursor.epoch, term: result.cursor.term, sequence: result.messages[count - 1].sequence)
    return Batch(cursor: end, hasMore: true, messages: count, arrival: arrival)
  }
}
