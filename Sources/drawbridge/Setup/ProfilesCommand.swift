import Glibc

/// `drawbridge profiles`.
enum ProfilesCommand {
  static let command = Command(
    "profiles",
    operands: [.init("NAME", choices: BuiltInProfile.all.map(\.name))],
    usage: "[NAME]",
    summary: "list the built-in profiles, or print one",
    purpose: """
      list the built-in profiles, which are configurations for kinds of WebSocket services, or print one to start from.
      """,
    examples: [
      "drawbridge profiles",
      "drawbridge serve --profile graphql-transport-ws --upstream wss://example.org/graphql",
      "drawbridge profiles phoenix >drawbridge.yaml",
    ],
    text: """
      With 'drawbridge serve --profile NAME', the settings of the profile are in effect unless a file, an environment
      variable or a flag sets them. The beginning of a profile says what it needs, such as an access token.
      """,
    exitCodes: [.ok, .usage, Command.ExitCode(ExitCode.output, "standard output cannot be written")]
  ) { (arguments) throws(UsageError) in
    guard let name = arguments.operands.first else {
      let width = BuiltInProfile.all.map(\.name.count).max() ?? 0
      for profile in BuiltInProfile.all {
        Terminal.print(profile.name + String(repeating: " ", count: width - profile.name.count + 2) + profile.summary)
      }
      return ExitCode.ok
    }
    let profile = try BuiltInProfile.named(name)
    return CommandFailure.report { () throws(CommandFailure) in
      try Terminal.output(profile.text)
      return ExitCode.ok
    }
  }
}
