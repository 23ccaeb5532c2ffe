import ByteStreams
import CLinux
import Glibc
import Threading

/// Why a program returned no output. The description continues a sentence that begins with the program's name.
package enum ChildProcessError: Error, Equatable, Sendable, CustomStringConvertible {
  case notStarted(Int32)
  case timedOut(TimeSpan)
  case exited(Int32)
  case killed(signal: Int32)
  /// The exit status of the program is not available. The value is `errno` of waitpid(2).
  case lost(Int32)

  package var description: String {
    switch self {
    case .notStarted(let code): "cannot be started: \(SystemError.reason(of: code))"
    case .timedOut(let limit): "was killed: it did not end within \(limit.secondsText) s"
    case .exited(let status): "failed with exit status \(status)"
    case .killed(let signal): "was terminated by signal \(signal)"
    case .lost(let code): "has no exit status: \(SystemError.reason(of: code))"
    }
  }
}

/// Kills a program for which another thread waits.
package final class ChildProcessKiller: Sendable {
  private struct State {
    /// The program while it runs. nil before its start, and once it may have been reaped: another process may then have
    /// its number.
    var process: pid_t?
    var isKilled = false
  }

  private let state = Locked(State())

  package init() {}

  /// Kills the process group of the program. If the program has not started yet, it is killed at its start.
  package func kill() {
    state.withLock { state in
      state.isKilled = true
      if let process = state.process { Glibc.kill(-process, SIGKILL) }
    }
  }

  fileprivate func started(_ process: pid_t) {
    state.withLock { state in
      state.process = process
      if state.isKilled { Glibc.kill(-process, SIGKILL) }
    }
  }

  /// Calls waitpid(2) without waiting. Returns its result.
  fileprivate func reap(_ process: pid_t, _ status: inout Int32) -> pid_t {
    state.withLock { state in
      let ended = unsafe waitpid(process, &status, WNOHANG)
      if ended > 0 { state.process = nil }
      return ended
    }
  }

  fileprivate func forget() { state.withLock { $0.process = nil } }
}

/// Runs another program and captures its standard output.
package enum ChildProcess {
  /// Polling interval for the exit of a child that has closed its output.
  private static let pollMilliseconds: Int32 = 10

  /// Returns what `command` (a program and its arguments, no shell) writes to its standard output, at most `limit`
  /// bytes. Its standard input is /dev/null; it inherits the environment and standard error of this process. If the
  /// timeout passes or the output exceeds `limit`, its process group is killed. `killer` can kill it earlier. Blocks.
  package static func output(
    of command: [String], within span: TimeSpan, atMost limit: Int, killer: ChildProcessKiller = ChildProcessKiller()
  ) throws(ChildProcessError) -> [UInt8] {
    let deadline = Deadline(after: span)
    let (process, descriptor) = try start(command)
    defer { SystemCall.close(descriptor) }
    killer.started(process)
    var output: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 4_096)
    while output.count < limit {
      guard deadline.waitUntilReadable(descriptor) else { throw end(process, killer, .timedOut(span)) }
      let count = SystemCall.retrying { unsafe read(descriptor, &piece, min(piece.count, limit - output.count)) }
      guard count > 0 else { break }
      output += piece[..<count]
    }
    guard output.count < limit else {
      // The program is killed, since it may have more output than was read, and would block on the full pipe forever.
      _ = end(process, killer, .timedOut(span))
      return output
    }
    var status: Int32 = 0
    while true {
      let ended = killer.reap(process, &status)
      if ended > 0 { break }
      guard ended == 0 || errno == EINTR else {
        let code = errno
        killer.forget()
        throw .lost(code)
      }
      guard deadline.remainingMilliseconds > 0 else { throw end(process, killer, .timedOut(span)) }
      poll(nil, 0, pollMilliseconds)
    }
    // wait(2): the low seven bits are the signal, the next byte the status.
    let signal = status & 0x7F
    guard signal == 0 else { throw .killed(signal: signal) }
    guard status >> 8 & 0xFF == 0 else { throw .exited(status >> 8 & 0xFF) }
    return output
  }

  private static func start(_ command: [String]) throws(ChildProcessError) -> (process: pid_t, descriptor: Int32) {
    var process: pid_t = 0
    var descriptor: Int32 = -1
    var words = unsafe command.map { unsafe strdup($0) }
    unsafe words.append(nil)
    let code = unsafe clinux_spawn(&words, &process, &descriptor)
    for index in unsafe words.indices { unsafe free(words[index]) }
    guard code == 0 else { throw .notStarted(code) }
    return (process, descriptor)
  }

  /// Kills the process group that the child leads, and waits for the child. Returns `reason`.
  private static func end(
    _ process: pid_t, _ killer: ChildProcessKiller, _ reason: ChildProcessError
  ) -> ChildProcessError {
    killer.forget()
    kill(-process, SIGKILL)
    var status: Int32 = 0
    while unsafe waitpid(process, &status, 0) < 0, errno == EINTR {}
    return reason
  }
}
