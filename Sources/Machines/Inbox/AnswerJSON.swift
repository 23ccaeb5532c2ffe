import ByteStreams

/// The JSON body of a poll's answer, around the messages that were rendered when they arrived:
/// `{"messages":[…],"cursor":"…","more":false,"gap":null}`.
package enum AnswerJSON {
  package static let opening: StaticString = "{\"messages\":["
  package static let separator: StaticString = ","

  /// Everything after the last message.
  package static func writeClosing(of result: ReadResult, into output: inout ByteQueue) {
    output.append("],\"cursor\":\"" as StaticString)
    result.cursor.write(into: &output)
    output.append(result.more ? "\",\"more\":true,\"gap\":" : "\",\"more\":false,\"gap\":")
    if let gap = result.gap {
      output.append("{\"missed\":" as StaticString)
      if let missed = gap.missed { output.append(decimal: missed) } else { output.append("null" as StaticString) }
      output.append(",\"reason\":" as StaticString)
      output.append(gap.reasons[0].json)
      output.append(",\"reasons\":[" as StaticString)
      var isFirst = true
      for reason in gap.reasons {
        if !isFirst { output.append("," as StaticString) }
        isFirst = false
        output.append(reason.json)
      }
      output.append("]}}" as StaticString)
    } else {
      output.append("null}" as StaticString)
    }
  }

  /// Bytes of the body whose closing takes `closing` bytes.
  package static func contentLength(of result: ReadResult, closing: Int) -> Int {
    var length = opening.utf8CodeUnitCount + closing + max(0, result.messages.count - 1)
    for message in result.messages { length += message.rendered.count }
    return length
  }
}

extension Gap.Reason {
  fileprivate var json: StaticString {
    switch self {
    case .restart: "\"restart\""
    case .retention: "\"retention\""
    case .upstream: "\"upstream\""
    }
  }
}
