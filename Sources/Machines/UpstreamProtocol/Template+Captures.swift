import ByteStreams
import JSONCodec

/// How a captured value is inserted into a message. An upstream chooses the value, so it must not change the structure
/// of the message around it.
enum CapturePlace: Hashable, Sendable {
  /// Inside another placeholder, which encodes the value.
  case encoded
  /// Inside a string of a JSON message, or between quotation marks in another message: escaped.
  case string
  /// Elsewhere in a JSON message: a JSON value. A text gets quotation marks.
  case value
  /// Outside the quotation marks of a message that is not JSON. The value must not contain quotation marks.
  case unquoted
  /// Like `unquoted`, in a message with braces or brackets that is not JSON. The value must not contain braces,
  /// brackets or commas either.
  case bracketed
  /// In an XML message: escaped.
  case xml
  /// In a message without quotation marks, braces and brackets.
  case plain

  func write(_ value: CapturedValue, of name: String, into output: inout ByteQueue) throws(TemplateError) {
    switch self {
    case .encoded: break
    case .string:
      output.append(jsonEscaped: value.content.span)
      return
    case .value where value.isText:
      output.append("\"")
      output.append(jsonEscaped: value.content.span)
      output.append("\"")
      return
    case .value: break
    case .xml:
      guard !value.hasControlCharacters else { throw .unsafeCapture(name) }
      for byte in value.content {
        switch byte {
        case UInt8(ascii: "&"): output.append("&amp;")
        case UInt8(ascii: "<"): output.append("&lt;")
        case UInt8(ascii: ">"): output.append("&gt;")
        case UInt8(ascii: "\""): output.append("&quot;")
        case UInt8(ascii: "'"): output.append("&apos;")
        default: output.append(byte)
        }
      }
      return
    case .unquoted, .bracketed, .plain:
      // In a line-based protocol, a line break would begin another line.
      guard !value.hasControlCharacters else { throw .unsafeCapture(name) }
      let hasQuotes = value.content.contains { $0 == UInt8(ascii: "\"") || $0 == UInt8(ascii: "\\") }
      guard self == .plain || !hasQuotes else { throw .unsafeCapture(name) }
      let hasBrackets = value.content.contains { "[]{},".utf8.contains($0) }
      guard self != .bracketed || !hasBrackets else { throw .unsafeCapture(name) }
    }
    output.append(value.content)
  }
}

extension CapturedValue {
  fileprivate var hasControlCharacters: Bool { content.contains { $0 < 0x20 || $0 == 0x7F } }
}

extension Template {
  /// The names of all captures in the template.
  var captures: Set<String> {
    var result: Set<String> = []
    Self.visit(pieces) { if case .capture(let name, _) = $0 { result.insert(name) } }
    return result
  }

  /// Returns the template with the place of each capture, which depends on the text around it.
  func placingCaptures() throws(TemplateSyntaxError) -> Template {
    guard !captures.isEmpty else { return self }
    // The first `<`, `{` or `[` in the text of the template shows its format. This character is not always at the
    // beginning: a placeholder may precede it.
    let structure = pieces.lazy.compactMap { piece in
      if case .text(let bytes) = piece { bytes.first { "<{[".utf8.contains($0) } } else { nil }
    }.first
    let isXML = form != .json && structure == UInt8(ascii: "<")
    var scanner = TextScanner(values: [:], form: form)
    var result: [Piece] = []
    for piece in pieces {
      switch piece {
      case .text(let bytes):
        scanner.skip(bytes)
        result.append(piece)
      case .capture(let name, _):
        guard !scanner.isNested || isXML else {
          throw TemplateSyntaxError(
            description:
              "'${capture:\(name)}' is in JSON inside a string, where it would be escaped only once, so the upstream could change the inner JSON"
          )
        }
        let place: CapturePlace =
          switch form {
          case _ where isXML: .xml
          case .plain: structure == nil ? .plain : .bracketed
          case .json: scanner.isInString ? .string : .value
          case .quoted: scanner.isInString ? .string : structure == nil ? .unquoted : .bracketed
          }
        result.append(.capture(name, place))
      case .json(let inner):
        // Escaped text is safe only inside a string.
        let names = Template(description: "", pieces: inner).captures.sorted()
        guard names.isEmpty || form != .json || scanner.isInString else {
          throw TemplateSyntaxError(
            description:
              "'${json:…}' around '${capture:\(names[0])}' must be inside a string: leave it out, since '${capture:…}' is escaped automatically"
          )
        }
        let hasQuotes = inner.contains {
          if case .text(let bytes) = $0 { bytes.contains(UInt8(ascii: "\"")) } else { false }
        }
        guard names.isEmpty || !hasQuotes else {
          throw TemplateSyntaxError(
            description:
              "'${json:…}' around '${capture:\(names[0])}' has quotation marks, and the value would not be escaped between them"
          )
        }
        result.append(piece)
      default: result.append(piece)
      }
    }
    return Template(description: description, pieces: result, kind: kind)
  }
}
