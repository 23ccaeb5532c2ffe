import ByteStreams

/// A request of a client (RFC 9112 §3), whose content is complete before it is sent.
package struct HTTPClientRequest: Sendable {
  package let method: HTTPMethod
  /// Path and query. Begins with `/`.
  package let target: String
  /// The value of Host.
  package let host: String
  /// Further fields. Host, Content-Length and those that concern the connection are not among them.
  package var fields: [(name: StaticString, value: String)] = []
  /// Lines of further fields, each with its CRLF, as a parser of this program has accepted them.
  package var fieldLines: [UInt8] = []
  package let content: SharedBytes

  /// - Parameters:
  ///   - target: visible ASCII only, as in an `HTTPURL`.
  ///   - host: the same.
  package init(_ method: HTTPMethod = .post, target: String, host: String, content: SharedBytes) {
    self.method = method
    self.target = target
    self.host = host
    self.content = content
  }

  /// Adds a field, whose value must be visible ASCII and spaces: it must not end its line.
  package mutating func add(_ name: StaticString, _ value: String) {
    precondition(value.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, "a field value contains a control character")
    fields.append((name, value))
  }

  /// Whether the method anticipates content, so that a server may demand the length of none as well (RFC 9110 §8.6).
  private var hasLength: Bool {
    switch method {
    case .post, .put, .patch: true
    default: content.count > 0
    }
  }

  package func write(into output: inout ByteQueue) {
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
    output.append(content.bytes)
  }
}
