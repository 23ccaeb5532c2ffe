import ByteStreams
import HTTPServer
import Inbox

/// Writes messages as single lines: line breaks between the tokens of JSON become spaces.
///
/// Each loop has its own object. The object keeps the single-line form of the last large message that had line breaks.
/// So all streams send the message from one copy, whatever their format, topics and positions. The copy needs the
/// memory of one push.
struct SingleLines {
  /// The single-line form of smaller messages is not kept, since they are copied with their batch.
  private static var smallestKept: Int { StreamLimits.batchBytes }

  private var kept: (message: ByteString, line: ByteString)?

  mutating func write(_ message: RetainedMessage, into content: inout ResponseContent) {
    guard message.hasLineBreaks, message.rendered.count > Self.smallestKept else {
      MessagesContent.writeLine(message, into: &content)
      return
    }
    content.append(ByteSlice(line(of: message.rendered)))
  }

  private mutating func line(of message: ByteString) -> ByteString {
    // `kept` keeps its message alive, so no other message can have the same address.
    if let kept, unsafe kept.message.baseAddress == message.baseAddress { return kept.line }
    var bytes = [UInt8](copying: message.bytes)
    for index in bytes.indices where bytes[index] == UInt8(ascii: "\n") || bytes[index] == UInt8(ascii: "\r") {
      bytes[index] = UInt8(ascii: " ")
    }
    let line = ByteString(bytes)
    kept = (message, line)
    return line
  }
}
