/// A variable of a profile: its name, and the values that clients may give it.
package struct ProfileVariable: Hashable, Sendable {
  package let name: String
  /// nil if any non-empty printable ASCII text is allowed.
  package var pattern: VariablePattern?
  /// In bytes.
  package var maximumLength = ProfileVariable.longestValue
  /// nil if a client must give a value.
  package var defaultValue: String?

  /// Maximum length of a value, in bytes. Symbols, ids and tokens are shorter. The length is limited because many
  /// settings of a session may contain the value.
  package static let longestValue = 256
  /// Maximum number of variables per profile. Their values are kept with every session.
  package static let maximumCount = 32
  /// Maximum length of a name, in bytes.
  static let longestName = 32

  package init(name: String) { self.name = name }

  package static let nameExpectation =
    "1 to \(longestName) letters, digits and underscores, beginning with a letter"

  package static func isName(_ name: some StringProtocol) -> Bool {
    guard let first = name.utf8.first, name.utf8.count <= longestName, isLetter(first) else { return false }
    return name.utf8.allSatisfy { isLetter($0) || (0x30...0x39).contains($0) || $0 == UInt8(ascii: "_") }
  }

  private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte | 0x20) }

  /// Returns the fault of a value; nil if the value is accepted.
  package func problem(with value: String) -> String? {
    guard value.utf8.allSatisfy({ (0x20...0x7E).contains($0) }) else {
      return "it has a character that is not printable ASCII"
    }
    guard value.utf8.count <= maximumLength else { return "it is longer than \(maximumLength) bytes" }
    // An empty segment of a path, or an empty field of a message, often has another meaning. So an empty value is
    // accepted only if a pattern matches it.
    guard let pattern else { return value.isEmpty ? "it is empty" : nil }
    return pattern.matches(value) ? nil : "it does not match the pattern \(pattern)"
  }
}

/// Why the variables of a request are refused. The text is for clients.
package struct VariableError: Error, Hashable, Sendable, CustomStringConvertible {
  package let description: String

  package init(_ description: String) { self.description = description }
}

extension [ProfileVariable] {
  /// Returns the values of all variables: the given values, and the defaults of the other variables.
  package func values(_ given: [String: String]) throws(VariableError) -> [String: String] {
    for name in given.keys.sorted() where !contains(where: { $0.name == name }) {
      throw VariableError("variable '\(Self.shown(name))' is unknown: \(names)")
    }
    var values: [String: String] = [:]
    for variable in self {
      guard let value = given[variable.name] ?? variable.defaultValue else {
        throw VariableError("variable '\(variable.name)' is missing and has no default")
      }
      if let problem = variable.problem(with: value) {
        throw VariableError("variable '\(variable.name)' has a value that is not accepted: \(problem)")
      }
      values[variable.name] = value
    }
    return values
  }

  private var names: String {
    isEmpty ? "this profile has no variables" : "this profile has \(map(\.name).joined(separator: ", "))"
  }

  /// The beginning of a client's text.
  private static func shown(_ text: String) -> String { String(text.prefix(ProfileVariable.longestName)) }
}
