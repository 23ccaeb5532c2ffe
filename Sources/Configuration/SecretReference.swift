import ByteStreams

/// A value, both as it is used and as it was written.
struct WrittenValue {
  /// The text with each reference replaced by its value.
  let value: String
  /// The text as written, which can be displayed.
  let text: String
  let place: String

  var hasReferences: Bool { value != text }
  /// Whether the text is a single reference, so that it reveals nothing about the value.
  var isReference: Bool {
    hasReferences && text.hasPrefix("${") && text.firstIndex(of: "}") == text.indices.last
  }
}

/// Replaces `${env:NAME}` and `${file:PATH}` by their values.
struct SecretReferenceReader {
  let environment: [String: String]
  let readFile: ConfigurationLoader.FileReader
  let paths: PathResolver

  /// Returns `text` with its references replaced. The last line break of a file is removed. If `isSecret`, errors
  /// contain no part of `text`.
  func resolve(_ text: String, at place: String, isSecret: Bool) throws(ConfigurationError) -> WrittenValue {
    var result = ""
    var rest = Substring(text)
    while let start = rest.firstRange(of: "${") {
      result += rest[..<start.lowerBound]
      guard let end = rest[start.upperBound...].firstIndex(of: "}") else {
        throw ConfigurationError(place: place, message: "'${' is not closed by '}'")
      }
      result += try value(of: rest[start.upperBound..<end], at: place, isSecret: isSecret)
      rest = rest[rest.index(after: end)...]
    }
    return WrittenValue(value: result + rest, text: text, place: place)
  }

  private func value(of reference: Substring, at place: String, isSecret: Bool) throws(ConfigurationError) -> String {
    if reference.hasPrefix("env:") {
      let name = String(reference.dropFirst(4))
      guard let value = environment[name] else {
        throw ConfigurationError(place: place, message: "environment variable '\(name)' is not set")
      }
      return value
    }
    if reference.hasPrefix("file:") {
      let path = paths.absolute(String(reference.dropFirst(5)), at: place)
      guard let bytes = readFile(path) else {
        throw ConfigurationError(place: place, message: "file '\(path)' cannot be read")
      }
      guard bytes.count <= YAMLDocument.maximumBytes, UTF8StreamValidator.isValid(bytes.span) else {
        throw ConfigurationError(
          place: place, message: "file '\(path)' is not UTF-8 text of at most \(YAMLDocument.maximumBytes) bytes")
      }
      var content = String(decoding: bytes, as: UTF8.self)
      // In Swift, CRLF is one Character.
      if content.last == "\n" || content.last == "\r\n" { content.removeLast() }
      return content
    }
    let shown = isSecret ? "…" : reference
    throw ConfigurationError(
      place: place, message: "'${\(shown)}' is not a valid reference: use ${env:NAME} or ${file:PATH}")
  }
}

extension Substring {
  /// The first occurrence of `word`. (The function of the standard library needs its regular-expression module.)
  func firstRange(of word: String) -> Range<Index>? {
    var start = startIndex
    while start < endIndex {
      if self[start...].hasPrefix(word) { return start..<index(start, offsetBy: word.count) }
      start = index(after: start)
    }
    return nil
  }
}
