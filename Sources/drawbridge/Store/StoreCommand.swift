import ByteStreams
import Glibc
import Host
import Store

/// `drawbridge store`: checks, exports and copies the database of a gateway.
enum StoreCommand {
  static let command = Command(
    "store",
    operands: [
      .init("check|export|backup", choices: ["check", "export", "backup"]), .init("PATH", isFile: true),
      .init("COPY", isFile: true),
    ],
    usage: "check|export|backup PATH [COPY]",
    summary: "check, export or copy the database of a gateway",
    purpose: """
      check, export and copy the database of a gateway with 'store.engine: sqlite'. (With 'store.engine: redis', use the
      tools of Redis.)
      """,
    examples: [
      "drawbridge store check /var/lib/drawbridge/drawbridge.db",
      "drawbridge store backup /var/lib/drawbridge/drawbridge.db /backup/monday.db",
      "drawbridge store export /var/lib/drawbridge/drawbridge.db | jq -c .push",
    ],
    text: """
      'check PATH' reads the whole database and prints a summary. The gateway must be stopped.

      'export PATH' writes the retained pushes and the messages without a final state to standard output, a JSON object
      per line. If the database is damaged, it writes the readable part. The gateway must be stopped.

      'backup PATH COPY' writes a copy. If a gateway is running, the gateway makes the copy, and its clients wait until
      it is done. The command sends the request on the socket PATH.sock, which only the gateway's user and root can use.
      If COPY exists, nothing is written.

      No command changes the database. To restore a backup: stop the gateway, move PATH, PATH-wal and PATH.new away,
      copy the backup to PATH with the same owner, start the gateway. Clients receive a gap with the reason 'store'.
      """,
    exitCodes: [
      Command.ExitCode(ExitCode.ok, "done; for check: the database is sound"), .usage,
      Command.ExitCode(ExitCode.data, "export: a part of the database could not be read"),
      Command.ExitCode(ExitCode.noInput, "there is no file with this name"),
      Command.ExitCode(
        ExitCode.unavailable,
        "the database is open in another process, or the system refuses the operation; nothing was done"),
      Command.ExitCode(ExitCode.output, "standard output cannot be written"),
      Command.ExitCode(ExitCode.configuration, "the database is damaged, of another program, or of a newer version"),
    ],
    run: run)

  private enum Action: String, CaseIterable {
    case check, export, backup

    var operands: [String] {
      switch self {
      case .check, .export: ["PATH"]
      case .backup: ["PATH", "COPY"]
      }
    }
  }

  /// Time between two lines about the progress of a long operation.
  private static let progressInterval = TimeSpan.seconds(2)

  private static func run(_ arguments: Arguments) throws(UsageError) -> Int32 {
    guard let word = arguments.operands.first else {
      throw UsageError(
        message: "'drawbridge store' needs a command: check, export or backup. See 'drawbridge store --help'.")
    }
    guard let action = Action(rawValue: word) else {
      throw UsageError(
        message: "unknown command 'store \(word)': use check, export or backup. See 'drawbridge store --help'.")
    }
    let operands = arguments.operands.dropFirst()
    guard operands.count == action.operands.count, operands.allSatisfy({ !$0.isEmpty }) else {
      throw UsageError(
        message:
          "'drawbridge store \(word)' takes \(action.operands.joined(separator: " and ")). See 'drawbridge store --help'."
      )
    }
    let path = operands[operands.startIndex]
    guard unsafe access(path, F_OK) == 0 else {
      Terminal.printError("drawbridge: store '\(path)' cannot be opened: \(SystemError.reason(of: errno))")
      return ExitCode.noInput
    }
    do throws(StoreError) {
      switch action {
      case .check: return try check(path)
      case .export: return try export(path)
      case .backup: return try backUp(path, to: operands[operands.startIndex + 1])
      }
    } catch {
      return refuse(error)
    }
  }

  @Sendable private static func printProgress(_ activity: StoreInspection.Activity, _ done: Int, _ total: Int) {
    let verb =
      switch activity {
      case .checking: "checked"
      case .reading: "read"
      case .copying: "copied"
      }
    Terminal.printError("drawbridge: \(done >> 20) of at most \(total >> 20) MiB are \(verb)")
  }

  private static func refuse(_ error: StoreError) -> Int32 {
    if case .inUse(let path) = error {
      Terminal.printError(
        "drawbridge: store '\(path)' is open in another process: stop it first, or copy the store with 'drawbridge store backup'"
      )
    } else {
      Terminal.printError("drawbridge: \(error)")
    }
    return error.concernsFile ? ExitCode.configuration : ExitCode.unavailable
  }

  // MARK: Check

  private static func check(_ path: String) throws(StoreError) -> Int32 {
    let summary = try StoreInspection.check(path, progress: printProgress)
    Terminal.print(
      "store '\(path)' is sound: schema \(summary.schema), \(summary.bytes) bytes, term \(summary.term)")
    if summary.endedUncleanly { Terminal.print("the last run did not end in order; nothing needs to be done") }
    if summary.isBackup { Terminal.print("it is a backup that no gateway has opened yet") }
    guard let sessions = summary.sessions else {
      Terminal.print("its schema is older: the gateway migrates it at its next start")
      return ExitCode.ok
    }
    for session in sessions {
      Terminal.print(
        "session '\(session.name)': \(counted(session.pushes, "push", "pushes")) retained, the next is \(session.nextPush); "
          + "\(counted(session.queued, "message")) queued; \(counted(session.consumers.count, "consumer"))")
      if let since = session.unusedSince {
        let days = max(0, ProcessInformation.wallClockMilliseconds() - since) / 86_400_000
        Terminal.print("  the configuration has not had this session for \(counted(Int(days), "day"))")
      }
      for consumer in session.consumers {
        Terminal.print(
          "  consumer '\(consumer.name)': settled up to push \(consumer.position); \(counted(consumer.leases, "lease")); "
            + counted(consumer.deadLetters, "dead letter"))
      }
    }
    return ExitCode.ok
  }

  private static func counted(_ count: Int, _ one: String, _ many: String? = nil) -> String {
    "\(count) \(count == 1 ? one : many ?? one + "s")"
  }

  // MARK: Export

  private static func export(_ path: String) throws(StoreError) -> Int32 {
    var output = Output()
    var (lines, bytes) = (0, 0)
    var next = ProcessInformation.monotonicTime() + progressInterval
    let unreadable = try StoreInspection.export(path) { line in
      output.append(line)
      lines += 1
      bytes += line.count
      guard ProcessInformation.monotonicTime() >= next else { return }
      next = ProcessInformation.monotonicTime() + progressInterval
      Terminal.printError("drawbridge: \(counted(lines, "line")) (\(bytes >> 20) MiB) are written")
    }
    output.flush()
    guard unreadable > 0 else { return ExitCode.ok }
    Terminal.printError(
      "drawbridge: \(counted(unreadable, "part")) of store '\(path)' could not be read; the output has the rest")
    return ExitCode.data
  }

  /// Standard output. If a write fails, the process exits.
  private struct Output: ~Copyable {
    private static let pieceBytes = 64 << 10
    private var bytes = ByteQueue()

    mutating func append(_ line: borrowing ByteQueue) {
      bytes.append(line.bytes)
      if bytes.count >= Self.pieceBytes { flush() }
    }

    mutating func flush() {
      while !bytes.isEmpty {
        let count = unsafe bytes.bytes.withUnsafeBytes { unsafe write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        if count < 0, errno == EINTR { continue }
        guard count > 0 else {
          Terminal.printError("drawbridge: standard output cannot be written: \(SystemError.reason(of: errno))")
          Terminal.exit(ExitCode.output)
        }
        bytes.consume(count)
      }
    }
  }

  // MARK: Backup

  /// Makes a running gateway copy the database. If no gateway is running, this process makes the copy.
  private static func backUp(_ path: String, to copy: String) throws(StoreError) -> Int32 {
    let target = Program.absolute(copy)
    guard !target.utf8.contains(UInt8(ascii: "\n")) else {
      throw .failed(path: path, reason: "no backup was made (the name of the copy has a line break)")
    }
    do throws(StoreError) {
      try StoreInspection.backUp(path, to: target, progress: printProgress)
    } catch {
      guard case .inUse = error else { throw error }
      var next = ProcessInformation.monotonicTime() + progressInterval
      let reason = try BackupRequest.send(path, target: target) { written, total in
        guard ProcessInformation.monotonicTime() >= next else { return }
        next = ProcessInformation.monotonicTime() + progressInterval
        printProgress(.copying, written, total)
      }
      if let reason {
        Terminal.printError("drawbridge: no backup of store '\(path)' was made: \(reason)")
        return ExitCode.unavailable
      }
    }
    Terminal.print("store '\(path)' was copied to '\(target)'")
    return ExitCode.ok
  }
}
