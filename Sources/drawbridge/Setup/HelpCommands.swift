import Configuration
import Gateway

/// `drawbridge completion`.
enum CompletionCommand {
  static let command = Command(
    "completion",
    operands: [.init("bash|zsh|fish", choices: Completion.shells)],
    usage: "bash|zsh|fish",
    summary: "print a script that completes commands and flags",
    purpose: "print a script with which a shell completes commands, flags and their values.",
    examples: [
      "source <(drawbridge completion bash)",
      "drawbridge completion zsh >~/.zfunc/_drawbridge",
      "drawbridge completion fish >~/.config/fish/completions/drawbridge.fish",
    ],
    exitCodes: [.ok, .usage]
  ) { (arguments) throws(UsageError) in
    guard let shell = arguments.operands.first, Completion.shells.contains(shell) else {
      throw UsageError(
        message: "'drawbridge completion' needs a shell: bash, zsh or fish. See 'drawbridge completion --help'.")
    }
    Terminal.print(Completion.script(for: shell, CommandList.all))
    return ExitCode.ok
  }
}

/// `drawbridge man`.
enum ManCommand {
  static let command = Command(
    "man",
    operands: [.init("COMMAND")],
    usage: "[COMMAND]",
    summary: "print the manual page of the program or of a command",
    purpose: "print the manual page of the program, or of one command, for man(1).",
    examples: ["drawbridge man | man -l -", "drawbridge man send >/usr/local/share/man/man1/drawbridge-send.1"],
    exitCodes: [.ok, .usage]
  ) { (arguments) throws(UsageError) in
    let version = DrawbridgeVersion.text
    guard let name = arguments.operands.first else {
      Terminal.print(ManualPage.page(of: CommandList.all, version: version))
      return ExitCode.ok
    }
    Terminal.print(ManualPage.page(of: try Invocation.command(name, among: CommandList.all), version: version))
    return ExitCode.ok
  }
}

/// `drawbridge schema`.
enum SchemaCommand {
  static let command = Command(
    "schema",
    summary: "print the JSON Schema of the configuration, for editors",
    purpose: "print the JSON Schema of the configuration, with which an editor completes and checks its keys.",
    examples: ["drawbridge schema >drawbridge.schema.json"],
    text: """
      In an editor with the YAML language server, begin the configuration with this line:

        # yaml-language-server: $schema=drawbridge.schema.json

      'drawbridge check-config' checks more: rules between settings, files, and secrets.
      """,
    exitCodes: [.ok, .usage, Command.ExitCode(ExitCode.output, "standard output cannot be written")]
  ) { _ in
    CommandFailure.report { () throws(CommandFailure) in
      try Terminal.output(ConfigurationSchema.text())
      return ExitCode.ok
    }
  }
}

/// `drawbridge version`.
enum VersionCommand {
  static let command = Command(
    "version",
    summary: "print the version",
    purpose: "print the version.",
    examples: ["drawbridge version"],
    exitCodes: [.ok, .usage]
  ) { _ in
    Terminal.print("drawbridge \(DrawbridgeVersion.text)")
    return ExitCode.ok
  }
}
