import ByteStreams

/// Writes the parts of one command, a name and its arguments, as strings of an array (RESP2).
///
///     output.appendCommand(parts: 3) { parts in
///       parts.append("SET")
///       parts.append(key.span)
///       parts.append(decimal: value)
///     }
package struct RESPCommandParts: ~Copyable {
  fileprivate var output: ByteQueue
  fileprivate var remaining: Int

  package mutating func append(_ part: Span<UInt8>) {
    begin(part.count)
    output.append(part)
    end()
  }

  package mutating func append(_ part: [UInt8]) { append(part.span) }

  package mutating func append(_ part: StaticString) {
    begin(part.utf8CodeUnitCount)
    output.append(part)
    end()
  }

  /// Disfavoured, since otherwise every literal would be converted to a `String` first.
  @_disfavoredOverload
  package mutating func append(_ part: String) { append(part.utf8Span.span) }

  /// Appends a number in decimal digits.
  package mutating func append(decimal value: UInt64) {
    var digits = 1
    var rest = value / 10
    while rest > 0 {
      digits += 1
      rest /= 10
    }
    begin(digits)
    output.append(decimal: value)
    end()
  }

  private mutating func begin(_ count: Int) {
    precondition(remaining > 0, "a command has more parts than it announced")
    remaining -= 1
    output.append("$")
    output.append(decimal: count)
    output.append("\r\n")
  }

  private mutating func end() { output.append("\r\n") }
}

extension ByteQueue {
  /// Appends a command of `parts` parts, which `write` appends one after another.
  package mutating func appendCommand(parts count: Int, _ write: (inout RESPCommandParts) -> Void) {
    append("*")
    append(decimal: count)
    append("\r\n")
    var parts = RESPCommandParts(output: ByteQueue(), remaining: count)
    swap(&parts.output, &self)
    write(&parts)
    swap(&parts.output, &self)
    // Redis would read the missing parts from the next command.
    precondition(parts.remaining == 0, "a command has fewer parts than it announced")
  }
}
