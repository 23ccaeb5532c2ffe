import ByteStreams

/// A POST of a client (RFC 9112 §3), whose content is complete before it is sent.
package struct HTTPClientRequest: Sendable {
  /// Path and query. Begins with `/`.
  package let target: String
  /// The value of Host.
  package let host: String
  /// Further fields. Host, Content-Length and those that concern the connection are not among them.
  package var fields: [(name: StaticString, value: String)] = []
  package let content: SharedBytes

  /// - Parameters:
  ///   - target: visible ASCII only, as in an `HTTPURL`.
  ///   - host: the same.
  package init(target: String, host: String, content: SharedBytes) {
    self.target = target
    self.host = host
    self.content = content
  }

  /// Adds a field, whose value must be visible ASCII and spaces: it must not end its line.
  package mutating func add(_ name: StaticString, _ value: String) {
    precondition(value.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, "a field value contains a control character")
    fields.append((name, value))
  }

  package func write(into output: inout ByteQueue) {
    output.append("POST " as StaticString)
    output.append(target)
    output.append(" HTTP/1.1\r\nHost: " as StaticString)
    output.append(host)
    output.append("\r\nContent-Length: " as StaticString)
    output.append(decimal: content.count)
    output.append("\r\n" as StaticString)
    for (name, value) in fields {
      output.append(name)
      output.append(": " as StaticString)
      output.append(value)
      output.append("\r\n" as StaticString)
    }
    output.append("\r\n" as StaticString)
    output.append(content.bytes)
  }
}
