import ByteStreams
import HTTPServer
import Inbox

/// The content of the response to a poll in the formats other than `MessagesJSON`. The position and the gap are in
/// header fields. The lines of a stream have the same form.
enum MessagesContent {
  /// One message per line. A message that is JSON may contain line breaks between its tokens, which become spaces.
  static func writeLines(_ messages: [RetainedMessage], into content: inout ResponseContent) {
    for message in messages {
      writeLine(message, into: &content)
      content.text.append("\n" as StaticString)
    }
  }

  static func writeLine(_ message: RetainedMessage, into content: inout ResponseContent) {
    var start = 0
    if message.hasLineBreaks {
      let bytes = message.rendered.bytes
      for index in bytes.indices where bytes[index] == UInt8(ascii: "\n") || bytes[index] == UInt8(ascii: "\r") {
        write(ByteSlice(message.rendered, range: start..<index), into: &content)
        content.text.append(" " as StaticString)
        start = index + 1
      }
    }
    write(ByteSlice(message.rendered, range: start..<message.rendered.count), into: &content)
  }

  /// Appends `slice` without a copy, unless it is so short that a copy needs less memory.
  static func write(_ slice: ByteSlice, into content: inout ResponseContent) {
    if slice.count < shortestSlice { content.text.append(slice.bytes) } else { content.append(slice) }
  }

  private static var shortestSlice: Int { 128 }

  /// Writes the payload of a message as the content, and its other members as header fields.
  static func write(_ message: RetainedMessage, id: Cursor, into response: inout Response) {
    response.fields.append("Gateway-Id: " as StaticString)
    id.write(into: &response.fields)
    response.fields.append("\r\nGateway-Time: " as StaticString)
    response.fields.append(message.time)
    response.fields.append("\r\nGateway-Type: " as StaticString)
    response.fields.append(message.kind.name)
    response.fields.append("\r\n" as StaticString)
    if let topic = message.topic {
      response.fields.append("Gateway-Topic: " as StaticString)
      writeField(topic, into: &response.fields)
      response.fields.append("\r\n" as StaticString)
    }
    if let payload = message.embeddedPayload {
      response.content.append(payload)
    } else {
      message.writePayload(into: &response.content.text)
    }
  }

  /// Percent-encodes the percent sign and all bytes that a field cannot contain.
  private static func writeField(_ text: [UInt8], into fields: inout ByteQueue) {
    for byte in text {
      if (0x21...0x7E).contains(byte), byte != UInt8(ascii: "%") {
        fields.append(byte)
      } else {
        fields.append(PercentEncoder.encode([byte].span))
      }
    }
  }
}
