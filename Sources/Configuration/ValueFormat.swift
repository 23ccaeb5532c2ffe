import ByteStreams

/// The text format of the values of one type: what is accepted, how text is parsed, and how a value is formatted.
struct ValueFormat<Value> {
  enum Reader {
    /// A single text.
    case scalar((String) throws(InvalidValue) -> Value)
    /// A list of texts. `isMapping`: the texts are `key: value` pairs. In the file they are a mapping. In a variable,
    /// each pair is a line.
    case list(isMapping: Bool, ([String]) throws(InvalidValue) -> Value)
    /// YAML nodes, in the file and in a variable. `isText`: in a variable, the value is a text without quotes.
    case structure(isText: Bool, (StructureReader, YAMLNode, _ key: String) throws(ConfigurationError) -> Value)
  }

  /// The accepted values, for the text of an error. It continues a sentence that begins with "use".
  let expectation: String
  /// The accepted words, if the values are words. An error suggests the nearest of them.
  var words: [String] = []
  /// Whether the value consists of URLs, whose userinfo and query may be secret.
  var isURL = false
  /// Whether the value is the path of a file.
  var isPath = false
  /// The accepted values, for the JSON Schema of the configuration.
  var schema = ValueSchema.text
  /// The scheme of a URL that is written without one; nil if every URL must have one.
  var impliedScheme: String?
  let reader: Reader
  /// Returns the value as it is written in the file.
  let format: (Value) -> String
}

/// Reports a text that is not a valid value.
struct InvalidValue: Error {
  /// The index of the element in a list, from 0.
  var index = 0
  /// What is wrong and what is accepted; nil if `expectation` is enough.
  var reason: String?
}

extension ValueFormat {
  /// A format whose `read` returns nil for invalid texts.
  static func scalar(
    _ expectation: String, words: [String] = [], schema: ValueSchema = .text, read: @escaping (String) -> Value?,
    format: @escaping (Value) -> String
  ) -> ValueFormat {
    ValueFormat(
      expectation: expectation, words: words, schema: schema,
      reader: .scalar { text throws(InvalidValue) in
        guard let value = read(text) else { throw InvalidValue() }
        return value
      }, format: format)
  }

  /// One of these words, each with its value.
  static func words(_ pairs: [(word: String, value: Value)], quotes: Bool = false) -> ValueFormat
  where Value: Equatable {
    let words = pairs.map(\.word)
    return .scalar("one of " + words.joined(separator: ", "), words: words, schema: .words(words)) { word in
      pairs.first { $0.word == word }?.value
    } format: { value in
      let word = pairs.first { $0.value == value }?.word ?? ""
      return quotes ? PrintableText.quoted(word) : word
    }
  }

  /// A list whose elements are read and formatted by these functions.
  static func list<Element>(
    _ expectation: String = "a list", isMapping: Bool = false, isURL: Bool = false, impliedScheme: String? = nil,
    read: @escaping (String) throws(InvalidValue) -> Element, format: @escaping (Element) -> String
  ) -> ValueFormat where Value == [Element] {
    ValueFormat(
      expectation: expectation, isURL: isURL, schema: isMapping ? .pairs(.text, orLines: true) : .texts,
      impliedScheme: impliedScheme,
      reader: .list(isMapping: isMapping) { texts throws(InvalidValue) in
        var values: [Element] = []
        for (index, text) in texts.enumerated() {
          do throws(InvalidValue) {
            values.append(try read(text))
          } catch {
            throw InvalidValue(index: index, reason: error.reason)
          }
        }
        return values
      }, format: { StructureText.list($0.map(format)) })
  }

  /// A format of YAML nodes that a method of `StructureReader` reads.
  ///
  /// - Parameter isText: whether the value in a variable is a text without quotes.
  static func structure(
    _ expectation: String, isText: Bool = false, schema: ValueSchema = .text,
    read: @escaping (StructureReader) -> (YAMLNode, String) throws(ConfigurationError) -> Value,
    format: @escaping (Value) -> String
  ) -> ValueFormat {
    ValueFormat(
      expectation: expectation, schema: schema,
      reader: .structure(isText: isText) { reader, node, key throws(ConfigurationError) in try read(reader)(node, key)
      },
      format: format)
  }
}
