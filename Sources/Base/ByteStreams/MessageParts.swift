/// The payload of one message, in up to three parts. With parts, text can be put around large content without copying
/// the content.
package struct MessageParts: ~Escapable {
  package let head: Span<UInt8>
  package let content: Span<UInt8>
  package let tail: Span<UInt8>

  @_lifetime(copy head, copy content, copy tail)
  package init(head: Span<UInt8> = Span(), _ content: Span<UInt8>, tail: Span<UInt8> = Span()) {
    self.head = head
    self.content = content
    self.tail = tail
  }

  /// The length of the payload in bytes.
  package var count: Int { head.count + content.count + tail.count }

  package func append(to output: inout ByteQueue) {
    output.reserve(count)
    output.append(head)
    output.append(content)
    output.append(tail)
  }
}
