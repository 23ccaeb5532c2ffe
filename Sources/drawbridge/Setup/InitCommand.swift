import Configuration
import Glibc
import Host
import Reactor

/// `drawbridge init`.
enum InitCommand {
  private static let defaultFile = "drawbridge.yaml"
  /// The upstream that is used to check the flags before the first question.
  private static let sampleUpstream = "ws://127.0.0.1/"

  private static let upstream = Flag("upstream", .text("URL"), "the WebSocket service to connect to")
  private static let kind = Flag(
    "kind", .choice(["websocket", "socketio"]), "the protocol of the service (default: websocket)")
  private static let listen = Flag(
    "listen", .text("ADDRESS"), "where clients connect (default: 127.0.0.1:8080)")
  private static let store = Flag("store", .file, "keep messages in this SQLite file, so that they survive a restart")
  private static let tokens = Flag("tokens", .file, "require a token from this file, which 'drawbridge token' fills")
  private static let force = Flag("force", .none, "replace a file that exists")

  static let command = Command(
    "init",
    operands: [.init("FILE", isFile: true)],
    usage: "[FILE | -]",
    summary: "write a small configuration",
    purpose: "write a small configuration with comments, by default drawbridge.yaml.",
    examples: [
      "drawbridge init",
      "drawbridge init --upstream wss://example.org/socket --store drawbridge.db",
      "drawbridge init - --upstream ws://127.0.0.1:9000/",
    ],
    text: """
      On a terminal and without --upstream, the command asks for the values, and asks again after an answer that is not
      valid. With -, the configuration goes to standard output. A file that exists is not replaced without --force. A flag whose value is
      not valid is refused, and nothing is written.
      """,
    flags: [upstream, kind, listen, store, tokens, force],
    exitCodes: [
      .ok, .usage, Command.ExitCode(ExitCode.cannotCreate, "the file exists, or cannot be written"),
      Command.ExitCode(ExitCode.configuration, "a value is not valid"),
    ]
  ) { (arguments) throws(UsageError) in
    var answers = Answers(
      upstream: arguments[upstream] ?? "", kind: arguments[kind] ?? "websocket",
      listen: arguments[listen] ?? "127.0.0.1:8080", store: arguments[store] ?? "", tokens: arguments[tokens] ?? "")
    let file = arguments.operands.first ?? defaultFile
    if file != "-", !arguments.has(force), unsafe access(file, F_OK) == 0 {
      Terminal.note("'\(file)' exists: choose another name, or replace it with --force")
      return ExitCode.cannotCreate
    }
    var given = answers
    if !arguments.has(upstream) { given.upstream = sampleUpstream }
    let errors = problems(in: given)
    guard errors.isEmpty else {
      report(errors)
      return ExitCode.configuration
    }
    if !arguments.has(upstream) {
      guard isatty(STDIN_FILENO) == 1, isatty(STDERR_FILENO) == 1 else {
        throw UsageError(
          message: "the upstream is missing: give its URL, as in 'drawbridge init --upstream wss://example.org/socket'."
        )
      }
      guard ask(&answers, arguments) else {
        Terminal.note("the upstream is missing: nothing is written")
        return ExitCode.usage
      }
    }
    return write(answers, to: file, isReplacing: arguments.has(force))
  }

  struct Answers: Equatable {
    var upstream: String
    var kind: String
    var listen: String
    /// The path of the store; empty if sessions are not stored.
    var store: String
    var tokens: String
  }

  // MARK: Questions

  /// Returns false if there is no upstream.
  private static func ask(_ answers: inout Answers, _ arguments: Arguments) -> Bool {
    ask(\.upstream, "WebSocket service to connect to", example: "wss://example.org/socket", &answers)
    guard !answers.upstream.isEmpty else { return false }
    if !arguments.has(kind) { ask(\.kind, "Protocol of the service", example: "websocket or socketio", &answers) }
    if !arguments.has(listen) { ask(\.listen, "Address for clients", example: "", &answers) }
    if !arguments.has(store) {
      ask(
        \.store, "File that keeps messages over a restart", example: "drawbridge.db; empty for none", &answers)
    }
    if !arguments.has(tokens) {
      ask(\.tokens, "File of tokens for clients", example: "tokens; empty for no authentication", &answers)
    }
    return true
  }

  /// Asks until the answer is valid. An empty answer, or the end of the input, keeps the present value.
  private static func ask(
    _ part: WritableKeyPath<Answers, String>, _ question: String, example: String, _ answers: inout Answers
  ) {
    while let text = answer(question, example: example, default: answers[keyPath: part]) {
      var changed = answers
      changed[keyPath: part] = text
      let errors = problems(in: changed)
      guard !errors.isEmpty else {
        answers = changed
        return
      }
      report(errors)
    }
  }

  /// Returns nil if the input has ended, or the answer is empty. Questions go to standard error, since standard output
  /// may be the configuration.
  private static func answer(_ question: String, example: String, default fallback: String) -> String? {
    let hint = fallback.isEmpty ? (example.isEmpty ? "" : " (\(example))") : " [\(fallback)]"
    Terminal.write("\(question)\(hint): ", to: STDERR_FILENO)
    guard let line = readLine() else {
      Terminal.write("\n", to: STDERR_FILENO)
      return nil
    }
    let words = line.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    return words.isEmpty ? nil : words
  }

  // MARK: The file

  private static func problems(in answers: Answers) -> [ConfigurationError] {
    let text = configuration(answers, file: defaultFile)
    let outcome = ConfigurationLoader.read(
      file: defaultFile, environment: [:], flags: [], ignored: [], readFile: { _ in Array(text.utf8) })
    do throws(ConfigurationErrors) {
      try outcome.check()
      return []
    } catch {
      return error.errors
    }
  }

  private static func report(_ errors: [ConfigurationError]) {
    for error in errors { Terminal.printError("drawbridge: \(error.message)") }
  }

  private static func write(_ answers: Answers, to file: String, isReplacing: Bool) -> Int32 {
    let text = configuration(answers, file: file)
    if file == "-" {
      Terminal.write(text, to: STDOUT_FILENO)
      return ExitCode.ok
    }
    let flags = O_WRONLY | O_CREAT | O_CLOEXEC | (isReplacing ? O_TRUNC : O_EXCL)
    let descriptor = unsafe open(file, flags, 0o644)
    guard descriptor >= 0 else {
      Terminal.note("'\(file)' cannot be written: \(SystemError.reason(of: errno))")
      return ExitCode.cannotCreate
    }
    let isWritten = Terminal.write(text, to: descriptor)
    let code = errno
    guard close(descriptor) == 0, isWritten else {
      Terminal.note("'\(file)' cannot be written: \(SystemError.reason(of: code))")
      return ExitCode.cannotCreate
    }
    Terminal.print("'\(file)' is written. Next:\n")
    if !answers.tokens.isEmpty { Terminal.print("  drawbridge token me >>\(answers.tokens)") }
    Terminal.print("  drawbridge check-config --config \(file)\n  drawbridge serve --config \(file)")
    return ExitCode.ok
  }

  static func configuration(_ answers: Answers, file: String) -> String {
    let name = file == "-" ? defaultFile : file
    let store =
      answers.store.isEmpty
      ? """
      # Keep acknowledged messages and pushes over a restart:
      #store:
      #  engine: sqlite
      #  path: drawbridge.db
      """
      : """
      # Keeps acknowledged messages and pushes over a restart.
      store:
        engine: sqlite
        path: \(quoted(answers.store))
      """
    let tokens =
      answers.tokens.isEmpty
      ? """
      # Require a token of every client. 'drawbridge token NAME >>tokens' makes one.
      #authentication:
      #  tokens: tokens
      """
      : """
      # Every client needs a token. 'drawbridge token NAME >>\(Terminal.oneLine(answers.tokens))' makes one.
      authentication:
        tokens: \(quoted(answers.tokens))
      """
    return """
      \(editorLine)# Configuration of Drawbridge. Every setting is explained in config/drawbridge.yaml.
      # Check this file: drawbridge check-config --config \(Terminal.oneLine(name))

      upstream:
        # The WebSocket service. Keep secrets out of this file: url: ${env:UPSTREAM_URL}
        url: \(quoted(answers.upstream))
        kind: \(quoted(answers.kind))
        # The queue for times without a connection: maximum age and number of messages.
        queue: {ttl: 30s, messages: 1024}

      delivery:
        # The pushes that are kept for clients.
        messages: 10000

      listeners:
        # Addresses for clients, and for probes, metrics and the status page.
        http: [\(quoted(answers.listen))]
        management: ['127.0.0.1:9090']

      \(store)

      \(tokens)

      """
  }

  /// The line that names the schema for editors with the YAML language server. The schema is at the path to which `make
  /// install` or a package installs it.
  private static var editorLine: String {
    let prefix = Program.path.split(separator: "/").dropLast(2).map { "/" + $0 }.joined()
    let schema = prefix + "/share/drawbridge/drawbridge.schema.json"
    return unsafe access(schema, R_OK) == 0 ? "# yaml-language-server: $schema=\(schema)\n" : ""
  }

  /// Returns a text in single quotation marks. The only escape in them is a doubled quotation mark.
  private static func quoted(_ text: String) -> String {
    "'" + text.map { $0 == "'" ? "''" : String($0) }.joined() + "'"
  }
}
