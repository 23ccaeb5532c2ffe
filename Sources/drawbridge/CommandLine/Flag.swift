/// A flag of a command: its name, the values that it accepts, and its line in the help.
struct Flag: Sendable {
  enum Value: Sendable {
    /// A switch, which is given or not.
    case none
    /// Any text. The value is the placeholder for the help.
    case text(String)
    case file
    case choice([String])
    /// A duration as in the configuration: `30s`, `10m`.
    case duration
    case number(ClosedRange<Int>)
    /// `KEY=VALUE`.
    case assignment
  }

  /// The name, without dashes.
  let name: String
  let value: Value
  /// The description: one sentence, without a full stop.
  let summary: String
  /// Whether each use of the flag adds a value. If false, only the last use has an effect.
  let isRepeatable: Bool

  init(_ name: String, _ value: Value, _ summary: String, isRepeatable: Bool = false) {
    self.name = name
    self.value = value
    self.summary = summary
    self.isRepeatable = isRepeatable
  }

  /// The flag as it is written in the help: `--ttl DURATION`.
  var usage: String { placeholder.isEmpty ? "--\(name)" : "--\(name) \(placeholder)" }

  var takesValue: Bool { if case .none = value { false } else { true } }

  var choices: [String] { if case .choice(let words) = value { words } else { [] } }

  var isFile: Bool { if case .file = value { true } else { false } }

  private var placeholder: String {
    switch value {
    case .none: ""
    case .text(let placeholder): placeholder
    case .file: "FILE"
    case .choice(let words): words.joined(separator: "|")
    case .duration: "DURATION"
    case .number: "NUMBER"
    case .assignment: "KEY=VALUE"
    }
  }
}
