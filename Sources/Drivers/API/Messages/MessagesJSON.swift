import ByteStreams
import HTTPServer
import Inbox

/// The body of the response to a poll: `{"messages":[…],"cursor":"…","more":false,"gap":null}` and a line break. Each
/// message was rendered when it arrived and is not copied.
enum MessagesJSON {
  static func write(_ result: ReadResult, _ cursor: Span<UInt8>, into content: inout ResponseContent) {
    content.text.append("{\"messages\":[" as StaticString)
    var isFirst = true
    for message in result.messages {
      if !isFirst { content.text.append("," as StaticString) }
      isFirst = false
      content.append(ByteSlice(message.rendered))
    }
    writeClosing(of: result, cursor, into: &content.text)
  }

  /// Writes everything after the last message.
  private static func writeClosing(of result: ReadResult, _ cursor: Span<UInt8>, into output: inout ByteQueue) {
    output.append("],\"cursor\":\"" as StaticString)
    output.append(cursor)
    output.append(result.more ? "\",\"more\":true,\"gap\":" : "\",\"more\":false,\"gap\":" as StaticString)
    write(result.gap, into: &output)
    output.append("}\n" as StaticString)
  }

  static func write(_ gap: Gap?, into output: inout ByteQueue) {
    guard let gap else {
      output.append("null" as StaticString)
      return
    }
    output.append("{" as StaticString)
    gap.writeMembers(into: &output)
    output.append("}" as StaticString)
  }
}

extension Gap {
  /// Writes the members of the JSON object: `"missed":12,"reason":"retention","reasons":["retention"]`.
  func writeMembers(into output: inout ByteQueue) {
    output.append("\"missed\":" as StaticString)
    if let missed { output.append(decimal: missed) } else { output.append("null" as StaticString) }
    output.append(",\"reason\":\"" as StaticString)
    output.append(reasons[0].name)
    output.append("\",\"reasons\":[" as StaticString)
    var isFirst = true
    for reason in reasons {
      output.append(isFirst ? "\"" : ",\"" as StaticString)
      isFirst = false
      output.append(reason.name)
      output.append("\"" as StaticString)
    }
    output.append("]" as StaticString)
  }
}
