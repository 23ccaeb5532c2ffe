import ByteStreams

/// The payload of a large frame whose header was written. It is masked a part at a time, when the output has room.
package final class FramePayload: LargeContent {
  private let content: ByteSlice
  /// The bytes after `content`.
  private let tail: ByteQueue
  /// The key for the first byte; nil if the frame is not masked.
  private let key: MaskingKey?
  private var offset = 0

  init(_ content: ByteSlice, tail: consuming ByteQueue, _ key: MaskingKey?) {
    self.content = content
    self.tail = tail
    self.key = key
  }

  package var count: Int { content.count + tail.count - offset }

  package func append(atMost limit: Int, to output: inout ByteQueue) {
    let content = content
    let end = offset + min(limit, count)
    if offset < content.count {
      let contentEnd = min(end, content.count)
      Self.append(content.bytes.extracting(offset..<contentEnd), key?.advanced(by: offset), to: &output)
      offset = contentEnd
    }
    guard offset < end else { return }
    Self.append(
      offset - content.count..<end - content.count, of: tail, key?.advanced(by: offset), to: &output)
    offset = end
  }

  private static func append(
    _ range: Range<Int>, of bytes: borrowing ByteQueue, _ key: MaskingKey?, to output: inout ByteQueue
  ) {
    append(bytes.bytes.extracting(range), key, to: &output)
  }

  private static func append(_ part: Span<UInt8>, _ key: MaskingKey?, to output: inout ByteQueue) {
    if let key { key.append(part, to: &output) } else { output.append(part) }
  }
}

extension WebSocketConnection {
  /// Appends the part of a large message's frame that precedes its content. Returns the rest of the frame, which must
  /// follow in the output.
  ///
  /// - Parameters:
  ///   - parts: the payload.
  ///   - content: the content of `parts`, in memory that stays valid.
  ///   - number: the number of a message that may have been compressed ahead. Only a message without a head and a tail
  ///     can be compressed.
  package mutating func beginMessage(
    _ kind: MessageKind, _ parts: borrowing MessageParts, _ content: ByteSlice, number: UInt64? = nil,
    using generator: inout some RandomNumberGenerator, into output: inout ByteQueue
  ) -> FramePayload {
    precondition(!hasSentClose, "a message was sent after the close frame")
    precondition(parts.content.count == content.count, "the content is not the content of the parts")
    writePongs(using: &generator, into: &output)
    var isCompressed = false
    var tail = ByteQueue()
    if parts.head.isEmpty, parts.tail.isEmpty, compression.isWorthwhile(content.count, number) {
      isCompressed = compression.compress(content.bytes)
      if isCompressed { tail = compression.takeCompressed() }
      compression.endOutboundMessage()
    }
    if !isCompressed { tail.append(parts.tail) }
    let content = isCompressed ? ByteSlice(content.storage, range: 0..<0) : content
    let key = role == .client ? MaskingKey(using: &generator) : nil
    FrameHeader(
      isFinal: true, isCompressed: isCompressed, opcode: kind.isText ? .text : .binary, maskingKey: key,
      payloadLength: parts.head.count + content.count + tail.count
    ).write(into: &output)
    if let key { key.append(parts.head, to: &output) } else { output.append(parts.head) }
    return FramePayload(content, tail: tail, key?.advanced(by: parts.head.count))
  }
}
