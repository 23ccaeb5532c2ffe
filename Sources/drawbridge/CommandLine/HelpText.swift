/// The texts of `--help`, made from the declarations.
enum HelpText {
  private static let width = 80
  /// The column at which the summaries of flags begin.
  private static let column = 27
  /// Where the summaries of commands begin.
  private static let overviewColumn = 36

  static func overview(of commands: [Command]) -> String {
    let lines = commands.map { item("  " + $0.heading, $0.summary, overviewColumn) }
    return """
      drawbridge: connect programs that speak only HTTP to services that speak only
      WebSocket. POST to send, long-poll to receive.

      \(lines.joined(separator: "\n"))

      'drawbridge COMMAND --help' explains a command, its flags and its exit codes.
      Every setting is explained in config/drawbridge.yaml. Each can also be set by
      an environment variable (upstream.url is DRAWBRIDGE_UPSTREAM_URL), and common
      settings by flags.
      """
  }

  static func text(of command: Command) -> String {
    var parts = [wrapped("\(command.heading): \(command.purpose)")]
    parts.append(command.examples.map { $0.isEmpty ? "" : "  " + $0 }.joined(separator: "\n"))
    if !command.text.isEmpty { parts.append(wrapped(command.text)) }
    if !command.flags.isEmpty {
      let items = command.flags.map {
        item("  " + $0.usage, $0.summary + ($0.isRepeatable ? " (repeatable)" : ""), column)
      }
      parts.append("Flags:\n" + items.joined(separator: "\n"))
    }
    if !command.notes.isEmpty { parts.append(wrapped(command.notes)) }
    let codes = command.exitCodes.map { item("  \($0.code)", $0.meaning, 6) }
    parts.append("Exit codes:\n" + codes.joined(separator: "\n"))
    return parts.joined(separator: "\n\n")
  }

  /// Returns a term and its description, which begins at the column.
  private static func item(_ term: String, _ description: String, _ column: Int) -> String {
    let lines = split(description, width - column)
    let indentation = String(repeating: " ", count: column)
    var rest = lines[...]
    let room = column - term.count
    let first = room >= 2 ? term + String(repeating: " ", count: room) + (rest.popFirst() ?? "") : term
    return ([first] + rest.map { indentation + $0 }).joined(separator: "\n")
  }

  /// Wraps paragraphs. A line that begins with a space stays as it is.
  static func wrapped(_ text: String) -> String {
    var lines: [String] = []
    var paragraph: [Substring] = []
    func flush() {
      if !paragraph.isEmpty { lines += split(paragraph.joined(separator: " "), width) }
      paragraph = []
    }
    for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.isEmpty || line.hasPrefix(" ") {
        flush()
        lines.append(String(line))
      } else {
        paragraph.append(line)
      }
    }
    flush()
    return lines.joined(separator: "\n")
  }

  private static func split(_ text: String, _ width: Int) -> [String] {
    var lines: [String] = []
    for word in text.split(separator: " ") {
      if let last = lines.last, last.count + 1 + word.count <= width {
        lines[lines.count - 1] = last + " " + word
      } else {
        lines.append(String(word))
      }
    }
    return lines
  }
}
