/// What is wrong with a configuration, where, and what would be right.
package struct ConfigurationError: Error, Hashable, Sendable, CustomStringConvertible {
  /// `file:line:column`, an environment variable's name, or a flag; empty where a default is at fault.
  package let place: String
  package let message: String

  /// Without control characters, which a value or a key may have had: it goes to a terminal.
  package var description: String { PrintableText.escaped(place.isEmpty ? message : "\(place): \(message)") }
}

/// All that is wrong, at most `limit` of it.
package struct ConfigurationErrors: Error, Sendable, CustomStringConvertible {
  package static let limit = 20
  package let errors: [ConfigurationError]

  package var description: String { errors.map(\.description).joined(separator: "\n") }
}

/// A setting whose value is well-formed but cannot be used: by itself, or together with others.
package struct SettingProblem: Error, Hashable, Sendable {
  /// Which part of the setting's value the error shows.
  package enum Subject: Hashable, Sendable {
    case none, value
    /// An element of a list, from 0.
    case item(Int)
  }

  /// The path of a setting, or of a section where several are at fault.
  package let key: String
  package let subject: Subject
  /// What is wrong and what is accepted. It never repeats the value, which may hold a secret: `Outcome.errors` adds it.
  package let reason: String

  /// Paths of settings that the value was compared with: if one of them cannot be used, this is no problem that is known.
  let others: [String]

  package init(_ key: String, _ subject: Subject, _ reason: String) {
    self.init(key, subject, reason, comparedWith: [])
  }

  init(_ key: String, _ subject: Subject, _ reason: String, comparedWith others: [String]) {
    self.key = key
    self.subject = subject
    self.reason = reason
    self.others = others
  }

  /// The same of settings whose paths begin with `prefix`.
  func prefixed(_ prefix: String) -> SettingProblem {
    SettingProblem(prefix + key, subject, reason, comparedWith: others.map { prefix + $0 })
  }

  /// For a log line that has no configuration to show the value from.
  package var description: String { "'\(key)' cannot be used: \(reason)" }
}

/// Every problem that was found.
package struct SettingProblems: Error, Hashable, Sendable {
  package let problems: [SettingProblem]

  package init(_ problems: [SettingProblem]) { self.problems = problems }

  package var description: String { problems.map(\.description).joined(separator: "; ") }
}
