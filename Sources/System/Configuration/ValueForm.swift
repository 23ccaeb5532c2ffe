/// How the values of a type are written: what is accepted, how text becomes a value, and how a value is shown.
struct ValueForm<Value> {
  enum Reader {
    /// One text.
    case scalar((String) throws(InvalidValue) -> Value)
    /// Several: a list in the file. `isMapping`: `key: value` pairs, a mapping in the file and a line each in the environment.
    case list(isMapping: Bool, ([String]) throws(InvalidValue) -> Value)
    /// YAML, also in a variable. `isText`: a variable holds the text without quotes.
    case structure(isText: Bool, (StructureReader, YAMLNode, _ key: String) throws(ConfigurationError) -> Value)
  }

  /// What a value looks like, for help and errors.
  let expectation: String
  /// The accepted words, where only these are: an error suggests the nearest.
  var words: [String] = []
  /// Whether it is a URL, or several, of which userinfo and query may be secret.
  var isURL = false
  let reader: Reader
  /// The value as it would stand in the file.
  let show: (Value) -> String
}

/// A text that is not a value.
struct InvalidValue: Error {
  /// Which of a list, from 0.
  var index = 0
  /// What is wrong and what is accepted; nil: what the form expects.
  var reason: String?
}

extension ValueForm {
  /// A form for texts, of which `read` returns nil for those that are not values.
  static func scalar(
    _ expectation: String, words: [String] = [], read: @escaping (String) -> Value?, show: @escaping (Value) -> String
  ) -> ValueForm {
    ValueForm(
      expectation: expectation, words: words,
      reader: .scalar { text throws(InvalidValue) in
        guard let value = read(text) else { throw InvalidValue() }
        return value
      }, show: show)
  }

  /// One of these words, each with the value that it means.
  static func words(_ pairs: [(word: String, value: Value)], quotes: Bool = false) -> ValueForm where Value: Equatable {
    let words = pairs.map(\.word)
    return .scalar("one of " + words.joined(separator: ", "), words: words) { word in
      pairs.first { $0.word == word }?.value
    } show: { value in
      let word = pairs.first { $0.value == value }?.word ?? ""
      return quotes ? PrintableText.quoted(word) : word
    }
  }

  /// Several values of `element`.
  static func list<Element>(
    _ expectation: String = "a list", isMapping: Bool = false, isURL: Bool = false,
    read: @escaping (String) throws(InvalidValue) -> Element, show: @escaping (Element) -> String
  ) -> ValueForm where Value == [Element] {
    ValueForm(
      expectation: expectation, isURL: isURL,
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
      }, show: { "[" + $0.map { PrintableText.quoted(show($0)) }.joined(separator: ", ") + "]" })
  }
}
