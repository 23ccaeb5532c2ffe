import ByteStreams
import Dialing
import Host
import Reactor
import UpstreamProtocol

/// Reads files and runs commands for one connection attempt, off the loop.
struct AttemptReader {
  let cancellation: Cancellation
  let loop: LoopContext

  /// Reads at most one byte more than `maximum`. Returns nil if the attempt is cancelled.
  func file(
    _ path: String, atMost maximum: Int = CredentialUse.maximumBytes, until deadline: MonotonicTime
  ) async -> RequiredFile.Outcome? {
    let work = RequiredFile.work(path, atMost: maximum, within: deadline - loop.now)
    return await cancellation.outcome(of: work, until: deadline, on: loop)
  }

  /// Returns the output of the command, at most one byte more than `maximum`. Returns nil if the attempt is cancelled.
  /// A command that still runs then is killed.
  func output(
    of command: [String], atMost maximum: Int = CredentialUse.maximumBytes, within limit: TimeSpan
  ) async -> BlockingWork<Secret.Output>.Outcome? {
    let killer = ChildProcessKiller()
    let work = BlockingWork(on: "command " + command.joined(separator: " ")) { () -> Secret.Output in
      do throws(ChildProcessError) {
        return .success(
          try ChildProcess.output(
            of: command, within: limit, atMost: maximum + 1, killer: killer))
      } catch {
        return .failure(error)
      }
    }
    let deadline = loop.now + limit + UpstreamSettings.killGracePeriod
    return await cancellation.outcome(of: work, until: deadline, on: loop) { killer.kill() }
  }
}
