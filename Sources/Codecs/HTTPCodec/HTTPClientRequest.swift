import ByteStreams

/// A request that this program sends (RFC 9112 §3). Its content is complete before it is sent.
package struct HTTPClientRequest: Sendable {
  package let method: HTTPMethod
  /// Path and query. They begin with `/`.
  package let target: String
  /// The value of Host.
  package let host: String
  /// Further fields, without Host, Content-Length and fields that concern the connection.
  package var fields: [(name: StaticString, value: String)] = []
  /// Further field lines, each with its CRLF. They come from a message that this program has parsed, and so validated.
  package var fieldLines: [UInt8] = []
  package let content: ByteString

  /// - Parameters:
  ///   - target: visible ASCII only, as in an `HTTPURL`.
  ///   - host: visible ASCII only, as in an `HTTPURL`.
  package init(_ method: HTTPMethod = .post, target: String, host: String, content: ByteString) {
    self.method = method
    self.target = target
    self.host = host
    self.content = content
  }

  /// Adds a field. Its value must consist of visible ASCII and spaces, so that it cannot end the line.
  package mutating func add(_ name: StaticString, _ value: String) {
    precondition(value.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, "a field value contains a control character")
    fields.append((name, value))
  }

  /// Whether Content-Length is sent. For methods that usually have content, it is sent even if the content is empty,
  /// since a server may require it (RFC 9110 §8.6).
  private var hasLength: Bool {
    switch method {
    case .post, .put, .patch: true
    default: content.count > 0
    }
  }

  package func write(into output: inout ByteQueue) {
    writeHead(into: &output)
    output.append(content.bytes)
  }

  package func writeHead(into output: inout ByteQueue) {
    output.append(method.name)
    output.append(" " as StaticString)
    output.append(target)
    output.append(" HTTP/1.1\r\nHost: " as StaticString)
    output.append(host)
    output.append("\r\n" as StaticString)
    if hasLength {
      output.append("Content-Length: " as StaticString)
      output.append(decimal: content.count)
      output.append("\r\n" as StaticString)
    }
    for (name, value) in fields {
      output.append(name)
      output.append(": " as StaticString)
      output.append(value)
      output.append("\r\n" as StaticString)
    }
    output.append(fieldLines)
    output.append("\r\n" as StaticString)
  }
}
