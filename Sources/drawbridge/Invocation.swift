import Configuration

/// A command line that makes no sense.
struct UsageError: Error {
  let message: String
}

/// What was typed: a command and its flags.
struct Invocation {
  enum Command: String, CaseIterable {
    case serve, demo, healthcheck, version
    case checkConfig = "check-config"
  }

  private(set) var command: Command?
  private(set) var wantsHelp = false
  private(set) var configurationFile: String?
  private(set) var flags: [(name: String, value: String)] = []

  init(_ arguments: [String]) throws(UsageError) {
    var rest = arguments[...]
    if let word = rest.first, !word.hasPrefix("-") {
      rest.removeFirst()
      if word == "help" {
        wantsHelp = true
        if let topic = rest.popFirst() { command = try Self.command(topic) }
        return
      }
      command = try Self.command(word)
    }
    while let argument = rest.popFirst() {
      if argument == "--help" || argument == "-h" {
        wantsHelp = true
        continue
      }
      if argument == "--version", command == nil {
        command = .version
        continue
      }
      guard argument.hasPrefix("--"), argument.count > 2 else {
        throw UsageError(
          message: "unexpected '\(argument)'; flags are written as --name value. See 'drawbridge --help'.")
      }
      let body = argument.dropFirst(2)
      let name = String(body.prefix { $0 != "=" })
      guard Self.flagNames.contains(name) else {
        let hint = Suggestion.text(for: name, among: Self.flagNames)
        throw UsageError(message: "unknown flag '--\(name)'\(hint). See 'drawbridge --help'.")
      }
      let value: String
      if body.count > name.count {
        value = String(body.dropFirst(name.count + 1))
      } else if let next = rest.popFirst() {
        value = next
      } else {
        throw UsageError(message: "'--\(name)' needs a value, as in --\(name)=VALUE.")
      }
      if name == "config" { configurationFile = value } else { flags.append((name, value)) }
    }
    if command == nil, !flags.isEmpty || configurationFile != nil, !wantsHelp {
      throw UsageError(
        message: "a command must come first, as in 'drawbridge serve --upstream URL'. See 'drawbridge --help'.")
    }
  }

  private static var flagNames: [String] { ["config"] + Setting.all.compactMap(\.flag) }

  private static func command(_ word: String) throws(UsageError) -> Command {
    if let command = Command(rawValue: word) { return command }
    let hint = Suggestion.text(for: word, among: Command.allCases.map(\.rawValue))
    throw UsageError(message: "unknown command '\(word)'\(hint). See 'drawbridge --help'.")
  }
}
