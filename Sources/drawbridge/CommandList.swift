/// All commands, in the order of the overview.
enum CommandList {
  static let all: [Command] = [
    DemoCommand.command, CheckConfigCommand.command, ServeCommand.command,
    TailCommand.command,
    HealthCheck.command, StoreCommand.command, TokenCommand.command,
    CompletionCommand.command, ManCommand.command, VersionCommand.command,
  ]
}
