/// All commands, in the order of the overview.
enum CommandList {
  static let all: [Command] = [
    DemoCommand.command, InitCommand.command, CheckConfigCommand.command, ServeCommand.command,
    ProfilesCommand.command,
    SendCommand.command, CallCommand.command, TailCommand.command, WorkCommand.command,
    StatusCommand.command, SessionsCommand.command, ReloadCommand.command,
    HealthCheck.command, StoreCommand.command, TokenCommand.command,
    SchemaCommand.command, CompletionCommand.command, ManCommand.command, VersionCommand.command,
  ]
}
