import ByteStreams
import Configuration

/// An invalid command line.
struct UsageError: Error {
  let message: String
}

/// The words of a command line after the command: flags with valid values, and operands.
struct Arguments {
  let command: Command
  private var values: [(name: String, value: String)] = []
  private(set) var operands: [String] = []
  /// The command after `--`, if `command` runs such a command.
  private(set) var commandToRun: [String] = []
  private(set) var showsHelp = false

  init(_ command: Command, _ words: ArraySlice<String>) throws(UsageError) {
    self.command = command
    var rest = words
    while let word = rest.popFirst() {
      if word == "--help" || word == "-h" {
        showsHelp = true
        continue
      }
      if word == "--" {
        if command.runsCommand {
          commandToRun = Array(rest)
        } else {
          for operand in rest { try append(operand) }
        }
        return
      }
      if word.hasPrefix("--") {
        try readFlag(word.dropFirst(2), &rest)
      } else {
        guard word == "-" || !word.hasPrefix("-") else { throw unexpected(word) }
        try append(word)
      }
    }
  }

  private mutating func append(_ word: String) throws(UsageError) {
    guard operands.count < command.operands.count else {
      guard !command.runsCommand else {
        throw UsageError(message: "unexpected argument '\(word)': write the command after '--'. See \(help).")
      }
      if operands.isEmpty, command.flags.contains(where: { $0.name == ConfigurationSource.fileFlag.name }) {
        throw UsageError(
          message: "unexpected argument '\(word)': the configuration is --config \(word). See \(help).")
      }
      throw unexpected(word)
    }
    operands.append(word)
  }

  private func unexpected(_ word: String) -> UsageError {
    UsageError(
      message: "unexpected argument '\(word)': write flags as --name value, and quote a text with spaces. See \(help).")
  }

  private var help: String { "'drawbridge \(command.name) --help'" }

  // MARK: Flags

  private mutating func readFlag(_ word: Substring, _ rest: inout ArraySlice<String>) throws(UsageError) {
    let name = String(word.prefix { $0 != "=" })
    guard let flag = command.flags.first(where: { $0.name == name }) else { throw unknown(name) }
    let hasValue = word.utf8.count > name.utf8.count
    guard flag.takesValue else {
      guard !hasValue else { throw UsageError(message: "flag '--\(name)' takes no value. See \(help).") }
      values.append((name, ""))
      return
    }
    let value: String
    if hasValue {
      value = String(word.dropFirst(name.count + 1))
    } else if let next = rest.popFirst() {
      value = next
    } else {
      throw UsageError(message: "flag '--\(name)' needs a value, as in --\(name)=VALUE.")
    }
    if let expectation = flag.expectation(unlessValid: value) {
      throw UsageError(message: "'--\(name) \(value)' is not valid: use \(expectation).")
    }
    values.append((name, value))
  }

  private func unknown(_ name: String) -> UsageError {
    // This is a flag of the configuration, which this command does not accept. Its name is not misspelt, so no other
    // flag is suggested.
    if ConfigurationSource.flags().contains(where: { $0.name == name }) {
      let reason =
        command.name == "demo" && name == "upstream" ? "its upstream is built in" : "only 'drawbridge serve' has it"
      return UsageError(message: "'drawbridge \(command.name)' has no flag '--\(name)': \(reason). See \(help).")
    }
    let hint = Suggestion.text(for: "--" + name, among: command.flags.map { "--" + $0.name })
    return UsageError(message: "unknown flag '--\(name)'\(hint). See \(help).")
  }

  // MARK: Values

  func has(_ flag: Flag) -> Bool { values.contains { $0.name == flag.name } }

  /// The last value of a flag.
  subscript(flag: Flag) -> String? { values.last { $0.name == flag.name }?.value }

  /// All values of a flag, in order.
  func all(_ flag: Flag) -> [String] { values.filter { $0.name == flag.name }.map(\.value) }

  func duration(_ flag: Flag) -> TimeSpan? { self[flag].flatMap { TimeSpan($0) } }

  func number(_ flag: Flag) -> Int? { self[flag].flatMap { Int($0) } }

  /// The flags that are settings of the gateway.
  var settings: [(name: String, value: String)] {
    values.filter { value in Setting.all.contains { $0.flag == value.name } }
  }
}

extension Flag {
  /// Returns a description of the accepted values if `text` is not valid; otherwise nil.
  func expectation(unlessValid text: String) -> String? {
    switch value {
    case .none, .text: return nil
    case .file: return text.isEmpty ? "the path of a file" : nil
    case .choice(let words): return words.contains(text) ? nil : words.joined(separator: ", ")
    case .duration: return TimeSpan(text) == nil ? "a duration, such as 500ms, 30s, 10m or 1h30m" : nil
    case .assignment:
      return text.contains("=") && text.first != "=" ? nil : "KEY=VALUE, such as upstream.heartbeat.interval=10s"
    case .number(let range):
      // Only digits are accepted, since `Int` would also accept a sign.
      guard text.utf8.allSatisfy({ ASCII.isDigit($0) }), let number = Int(text), range.contains(number) else {
        return "a number from \(range.lowerBound) to \(range.upperBound)"
      }
      return nil
    }
  }
}
