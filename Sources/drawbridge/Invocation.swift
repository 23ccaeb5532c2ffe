import Configuration
import Host
import Reactor

/// An invalid command line.
struct UsageError: Error {
  let message: String
}

/// A parsed command line: a command and its flags.
struct Invocation {
  enum Command: String, CaseIterable {
    case serve, demo, healthcheck, store, tail, token, version
    case checkConfig = "check-config"

    /// The flags that the command accepts, without dashes.
    var flags: [String] {
      switch self {
      case .serve, .checkConfig: ["config"] + Setting.all.compactMap(\.flag)
      case .demo: ["config", "kind", "listen", "management", "loops", "access", "log-level", "log-format"]
      case .healthcheck: ["config", "management"]
      case .tail:
        [
          "session", "topic", "cursor", "since", "last", "token-file", "ca-file", "certificate", "key", "format",
          "color",
        ]
      case .token: ["scopes", "sessions", "topics"]
      case .store, .version: []
      }
    }

    /// The number of words that the command accepts besides flags.
    var maximumOperands: Int {
      switch self {
      case .tail, .token: 1
      case .store: 3
      default: 0
      }
    }
  }

  private(set) var command: Command?
  private(set) var showsHelp = false
  /// The file named by the flag `--config`, or else by the environment variable DRAWBRIDGE_CONFIG.
  private(set) var configurationFile: String?
  private(set) var flags: [(name: String, value: String)] = []
  /// The operand: for `drawbridge token` the name of the token, for `drawbridge tail` the URL of the gateway.
  var name: String? { operands.first }
  /// The words besides flags.
  private(set) var operands: [String] = []

  init(_ arguments: [String]) throws(UsageError) {
    var rest = arguments[...]
    if let word = rest.first, !word.hasPrefix("-") {
      rest.removeFirst()
      if word == "help" {
        showsHelp = true
        if let topic = rest.popFirst() { command = try Self.command(topic) }
        guard let extra = rest.first else { return }
        throw UsageError(message: "unexpected argument '\(extra)': 'drawbridge help' takes one command.")
      }
      command = try Self.command(word)
    }
    while let argument = rest.popFirst() {
      if argument == "--help" || argument == "-h" {
        showsHelp = true
        continue
      }
      if argument == "--version", command == nil {
        command = .version
        continue
      }
      if !argument.hasPrefix("-"), let command, operands.count < command.maximumOperands {
        operands.append(argument)
        continue
      }
      guard argument.hasPrefix("--"), argument.count > 2 else {
        throw UsageError(
          message: "unexpected argument '\(argument)': write flags as --name value. See 'drawbridge --help'.")
      }
      let body = argument.dropFirst(2)
      let name = String(body.prefix { $0 != "=" })
      try check(flag: name)
      let value: String
      if body.count > name.count {
        value = String(body.dropFirst(name.count + 1))
      } else if let next = rest.popFirst() {
        value = next
      } else {
        throw UsageError(message: "flag '--\(name)' needs a value, as in --\(name)=VALUE.")
      }
      if name == "config", value.isEmpty { throw UsageError(message: "flag '--config' needs the path of a file.") }
      if name == "config" { configurationFile = value } else { flags.append((name, value)) }
    }
    if command == nil, !flags.isEmpty || configurationFile != nil, !showsHelp {
      throw UsageError(
        message:
          "no command: write it before the flags, as in 'drawbridge serve --upstream URL'. See 'drawbridge --help'.")
    }
    // An empty variable counts as unset: an empty value is the way to override a variable of a container's environment.
    if configurationFile == nil, let file = SystemFile.environment()["DRAWBRIDGE_CONFIG"], !file.isEmpty {
      configurationFile = file
    }
  }

  /// Refuses flags that would have no effect.
  private func check(flag name: String) throws(UsageError) {
    let accepted = (command ?? .serve).flags
    if accepted.contains(name) { return }
    let help = command.map { "'drawbridge \($0.rawValue) --help'" } ?? "'drawbridge --help'"
    if let command, Command.serve.flags.contains(name) {
      let reason =
        command == .demo && name == "upstream" ? "its upstream is built in" : "only 'drawbridge serve' has it"
      throw UsageError(message: "'drawbridge \(command.rawValue)' has no flag '--\(name)': \(reason). See \(help).")
    }
    throw UsageError(message: "unknown flag '--\(name)'\(Suggestion.text(for: name, among: accepted)). See \(help).")
  }

  private static func command(_ word: String) throws(UsageError) -> Command {
    if let command = Command(rawValue: word) { return command }
    let hint = Suggestion.text(for: word, among: Command.allCases.map(\.rawValue))
    throw UsageError(message: "unknown command '\(word)'\(hint). See 'drawbridge --help'.")
  }
}
