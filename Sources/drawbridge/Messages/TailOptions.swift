import ByteStreams
import Configuration
import Host
import Reactor

/// The command line of `drawbridge tail`.
struct TailOptions {
  static let topic = Flag(
    "topic", .text("TOPIC"), "only pushes with this topic; a final * selects all topics with this beginning",
    isRepeatable: true)
  static let cursor = Flag(
    "cursor", .text("CURSOR"), "start after this position; also earliest, or latest (the default)")
  static let since = Flag("since", .text("DURATION"), "start with the pushes of the last DURATION, such as 10m")
  static let last = Flag("last", .text("NUMBER"), "start with the last NUMBER pushes")
  static let exec = Flag(
    "exec", .text("COMMAND"),
    "run this command of the shell for each push, one after another, with the push as its input")
  static let format = Flag(
    "format", .choice(TailOutput.Format.allCases.map(\.rawValue)),
    "a line for people, or the JSON object (default: text on a terminal, else ndjson)")
  static let color = Flag("color", .choice(["auto", "always", "never"]), "colours (default: auto, on a terminal)")
  static let flags =
    [ClientOptions.session, topic, cursor, since, last, exec, format, color] + ClientOptions.connectionFlags

  let client: ClientOptions
  /// The parameters of the first request that state the position, percent-encoded, such as `since=10m`.
  let start: String
  /// The topics to which the pushes are limited; empty for all topics.
  let topics: [String]
  /// The shell command that gets each push.
  let exec: String?
  let output: TailOutput

  /// The parameters of every request.
  var filter: String { topics.map { "&topic=\(PercentEncoder.encode(Array($0.utf8).span))" }.joined() }

  init(_ arguments: Arguments) throws(UsageError) {
    client = try ClientOptions(arguments, operand: arguments.operands.first)
    let positions = [Self.cursor, Self.since, Self.last].compactMap { flag in arguments[flag].map { (flag.name, $0) } }
    guard positions.count <= 1 else {
      throw UsageError(message: "--cursor, --since and --last exclude each other: give one of them as the start.")
    }
    start = positions.first.map { "\($0.0)=\(PercentEncoder.encode(Array($0.1.utf8).span))" } ?? "cursor=latest"
    topics = arguments.all(Self.topic)
    exec = arguments[Self.exec]
    if exec != nil, arguments.has(Self.format) {
      throw UsageError(message: "--exec and --format exclude each other: with --exec, the command gets each push.")
    }
    let isTerminal = Terminal.isTerminal
    let noColor = SystemFile.environment()["NO_COLOR"].map { !$0.isEmpty } ?? false
    let color = arguments[Self.color] ?? "auto"
    output = TailOutput(
      format: arguments[Self.format].flatMap { TailOutput.Format(rawValue: $0) } ?? (isTerminal ? .text : .ndjson),
      isColored: color == "always" || color == "auto" && isTerminal && !noColor, isTerminal: isTerminal)
  }
}
