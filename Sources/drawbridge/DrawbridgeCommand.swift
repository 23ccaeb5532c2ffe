import Gateway
import Host
import Reactor

/// The program: one command of `CommandList`.
@main
enum DrawbridgeCommand {
  static func main() {
    StandardStreams.openMissing()
    ProcessSignals.ignoreBrokenPipes()
    Terminal.exit(run(Array(CommandLine.arguments.dropFirst())))
  }

  private static func run(_ words: [String]) -> Int32 {
    do throws(UsageError) {
      switch try Invocation(words, among: CommandList.all) {
      case .nothing:
        Terminal.printError(HelpText.overview(of: CommandList.all))
        return ExitCode.usage
      case .overview: Terminal.print(HelpText.overview(of: CommandList.all))
      case .help(let command): Terminal.print(HelpText.text(of: command))
      case .run(let arguments): return try arguments.command.run(arguments)
      }
      return ExitCode.ok
    } catch {
      Terminal.printError("drawbridge: \(error.message)")
      return ExitCode.usage
    }
  }
}
