import ByteStreams
import Glibc
import Host
import Reactor

/// A command that handles a push: the payload is its standard input, and the fields are variables of its environment.
struct PushProcess {
  let id: pid_t

  /// How the command ended.
  enum End: Equatable {
    case exited(Int32)
    case killed(Int32)
    case lost(Int32)

    var isSuccess: Bool { self == .exited(0) }

    var text: String {
      switch self {
      case .exited(let status): "ended with status \(status)"
      case .killed(let signal): "was ended by signal \(signal)"
      case .lost(let code): "has no exit status: \(SystemError.reason(of: code))"
      }
    }
  }

  /// Starts `command`, a program and its arguments, in a process group of its own, so that Ctrl-C of a terminal does
  /// not end it.
  init(_ command: [String], for push: Push, of session: String) throws(SystemError) {
    let input = try Self.temporaryFile()
    defer { close(input) }
    var rest = push.payload[...]
    while !rest.isEmpty {
      let count = unsafe rest.withUnsafeBytes { unsafe write(input, $0.baseAddress, $0.count) }
      guard count > 0 || errno == EINTR else { throw SystemError("write", code: errno) }
      rest = rest.dropFirst(max(0, count))
    }
    lseek(input, 0, SEEK_SET)
    let own = SystemFile.environment().filter { !$0.key.hasPrefix("PUSH_") }
    let variables = own.merging(push.variables(session: session)) { _, new in new }
    id = try Self.spawn(command, variables.map { "\($0.key)=\($0.value)" }, input: input)
  }

  /// Returns the error number with which `program` cannot be started; nil if it is an executable file. A name without a
  /// slash is looked up in PATH, as `posix_spawnp` does.
  static func obstacle(to program: String) -> Int32? {
    let folders = program.contains("/") ? nil : SystemFile.environment()["PATH"] ?? "/bin:/usr/bin"
    let paths =
      folders?.split(separator: ":", omittingEmptySubsequences: false).map { $0.isEmpty ? program : "\($0)/\(program)" }
      ?? [program]
    var obstacle = ENOENT
    for path in paths {
      if unsafe access(path, X_OK) == 0 { return nil }
      // If a folder has the file but this process may not execute it, that is a better explanation than the absence of
      // the file in other folders.
      if errno == EACCES { obstacle = EACCES }
    }
    return obstacle
  }

  /// Returns a file without a name, which no other user can open. The file is in `TMPDIR` if this variable is set. If
  /// it is not, the file is in memory (/dev/shm) if possible, and otherwise in /tmp.
  private static func temporaryFile() throws(SystemError) -> Int32 {
    for folder in [SystemFile.environment()["TMPDIR"], "/dev/shm", "/tmp"].compactMap(\.self) {
      var name = Array("\(folder)/drawbridge-XXXXXX\0".utf8CString)
      let descriptor = unsafe mkstemp(&name)
      guard descriptor >= 0 else { continue }
      unsafe unlink(&name)
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      return descriptor
    }
    throw SystemError("mkstemp", code: errno)
  }

  private static func spawn(
    _ command: [String], _ environment: [String], input: Int32
  ) throws(SystemError) -> pid_t {
    var files = unsafe posix_spawn_file_actions_t()
    var attributes = posix_spawnattr_t()
    unsafe posix_spawn_file_actions_init(&files)
    unsafe posix_spawnattr_init(&attributes)
    defer {
      unsafe posix_spawn_file_actions_destroy(&files)
      unsafe posix_spawnattr_destroy(&attributes)
    }
    unsafe posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO)
    var none = sigset_t()
    var all = sigset_t()
    unsafe sigemptyset(&none)
    unsafe sigfillset(&all)
    unsafe posix_spawnattr_setsigmask(&attributes, &none)
    unsafe posix_spawnattr_setsigdefault(&attributes, &all)
    unsafe posix_spawnattr_setpgroup(&attributes, 0)
    unsafe posix_spawnattr_setflags(
      &attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
    var words = unsafe command.map { unsafe strdup($0) }
    unsafe words.append(nil)
    var variables = unsafe environment.map { unsafe strdup($0) }
    unsafe variables.append(nil)
    defer {
      for index in unsafe words.indices { unsafe free(words[index]) }
      for index in unsafe variables.indices { unsafe free(variables[index]) }
    }
    var process: pid_t = 0
    let code = unsafe posix_spawnp(&process, command.first ?? "", &files, &attributes, &words, &variables)
    guard code == 0 else { throw SystemError("posix_spawn", code: code) }
    return process
  }

  /// Returns how the command ended; nil if it is running.
  func end() -> End? {
    var status: Int32 = 0
    while true {
      let ended = unsafe waitpid(id, &status, WNOHANG)
      if ended == 0 { return nil }
      if ended < 0, errno == EINTR { continue }
      guard ended > 0 else { return .lost(errno) }
      // wait(2): the low seven bits are the signal, the next byte the status.
      let signal = status & 0x7F
      return signal == 0 ? .exited(status >> 8 & 0xFF) : .killed(signal)
    }
  }

  /// Sends a signal to the command and its children.
  func signal(_ number: Int32) { _ = kill(-id, number) }
}

/// A push in the form in which a command gets it.
struct Push {
  let document: Document

  /// The payload as the upstream has sent it. The payload of an event is the array of its arguments.
  var payload: [UInt8] {
    if let encoded = document.content("data_base64") { return Base64.decode(encoded.span) ?? [] }
    if document.text("type") == "text" { return document.content("data") ?? [] }
    return document.json("data").map { Array($0.utf8) } ?? []
  }

  /// The fields: `PUSH_ID`, `PUSH_TIME`, `PUSH_TYPE`, `PUSH_TOPIC`, `PUSH_SESSION`, and if the push has them
  /// `PUSH_NAMESPACE`, `PUSH_ACK` and `PUSH_DELIVERIES`.
  func variables(session: String) -> [String: String] {
    var variables = ["PUSH_SESSION": session, "PUSH_TOPIC": ""]
    for name in ["id", "time", "type", "topic", "namespace", "ack"] {
      // NULs are removed, since the value of a variable ends at a NUL.
      if let text = document.text(name) { variables["PUSH_\(name.uppercased())"] = text.filter { $0 != "\0" } }
    }
    if let count = document.integer("deliveries") { variables["PUSH_DELIVERIES"] = "\(count)" }
    return variables
  }
}
