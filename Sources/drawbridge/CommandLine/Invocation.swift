import Configuration

/// The meaning of a command line.
enum Invocation {
  case overview
  case help(Command)
  case run(Arguments)
  /// The command line has no words.
  case nothing

  init(_ words: [String], among commands: [Command]) throws(UsageError) {
    guard let word = words.first else {
      self = .nothing
      return
    }
    var rest = words.dropFirst()
    switch word {
    case "--help", "-h":
      guard let extra = rest.first else {
        self = .overview
        return
      }
      throw UsageError(message: "unexpected argument '\(extra)' after '\(word)'. See 'drawbridge --help'.")
    case "help":
      let topic = rest.popFirst()
      if let extra = rest.first {
        throw UsageError(message: "unexpected argument '\(extra)': 'drawbridge help' takes one command.")
      }
      guard let topic else {
        self = .overview
        return
      }
      self = .help(try Self.command(topic, among: commands))
    case "--version":
      self = .run(try Arguments(try Self.command("version", among: commands), rest))
    case let flag where flag.hasPrefix("-"):
      throw UsageError(
        message:
          "no command: write it before the flags, as in 'drawbridge serve --upstream URL'. See 'drawbridge --help'.")
    default:
      let arguments = try Arguments(try Self.command(word, among: commands), rest)
      self = arguments.showsHelp ? .help(arguments.command) : .run(arguments)
    }
  }

  static func command(_ word: String, among commands: [Command]) throws(UsageError) -> Command {
    if let command = commands.first(where: { $0.name == word }) { return command }
    let hint = Suggestion.text(for: word, among: commands.map(\.name))
    throw UsageError(message: "unknown command '\(word)'\(hint). See 'drawbridge --help'.")
  }
}
