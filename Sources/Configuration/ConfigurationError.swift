import ByteStreams

/// An error in a configuration: where it is, what is wrong, and what is accepted.
package struct ConfigurationError: Error, Hashable, Sendable, CustomStringConvertible {
  /// `file:line:column`, an environment variable's name, or a flag; empty if the value is a default.
  package let place: String
  package let message: String

  package init(place: String, message: String) {
    self.place = place
    self.message = message
  }

  /// For a terminal: control characters of values and keys are escaped.
  package var description: String { PrintableText.escaped(place.isEmpty ? message : "\(place): \(message)") }
}

/// The errors that were found, at most `limit` of them.
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
    /// The setting is required, but not set. The reason states why it is required, as the rest of a sentence.
    case missing
    /// An element of a list, from 0.
    case item(Int)
  }

  /// The path of a setting, or the path of a section if several of its settings are involved.
  package let key: String
  package let subject: Subject
  /// What is wrong and what is accepted. The text does not contain the value, which may be a secret: `Outcome.errors`
  /// adds the value in a form that can be shown.
  package let reason: String

  /// Paths of the settings that the value was compared with. If one of them is invalid, this problem may be only a
  /// consequence of that.
  let comparedKeys: [String]

  package init(_ key: String, _ subject: Subject, _ reason: String) {
    self.init(key, subject, reason, comparedWith: [])
  }

  init(_ key: String, _ subject: Subject, _ reason: String, comparedWith comparedKeys: [String]) {
    self.key = key
    self.subject = subject
    self.reason = reason
    self.comparedKeys = comparedKeys
  }

  /// Returns the same problem with `prefix` before all paths.
  func prefixed(_ prefix: String) -> SettingProblem {
    SettingProblem(prefix + key, subject, reason, comparedWith: comparedKeys.map { prefix + $0 })
  }

  /// Returns the same problem for a value that is not in the configuration, and so must be named in the text.
  package func of(_ value: String) -> SettingProblem {
    SettingProblem(key, .none, "\(value): \(reason)", comparedWith: comparedKeys)
  }

  /// - Parameter value: the configured value, as errors show it; nil if the error does not show it.
  func text(showing value: String?) -> String {
    if let value { return "\(value) is not valid for '\(key)': \(reason)" }
    return subject == .missing ? "'\(key)' is not set, but \(reason)" : "'\(key)' cannot be used: \(reason)"
  }

  /// For a log line, where the configured value is not available.
  package var description: String { text(showing: nil) }
}

/// All problems that were found.
package struct SettingProblems: Error, Hashable, Sendable {
  package let problems: [SettingProblem]

  package init(_ problems: [SettingProblem]) { self.problems = problems }

  package var description: String { problems.map(\.description).joined(separator: "; ") }
}
