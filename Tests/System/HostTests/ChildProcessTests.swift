import ByteStreams
import Foundation
import Glibc
import Testing

@testable import Host

@Suite struct ChildProcessTests {
  private func output(
    _ command: String..., within span: TimeSpan = .seconds(60), atMost limit: Int = 1 << 20
  ) throws(ChildProcessError) -> String {
    String(decoding: try ChildProcess.output(of: command, within: span, atMost: limit), as: UTF8.self)
  }

  @Test func returnsTheOutput() throws {
    #expect(try output("printf", "%s|", "a b", "$HOME", "*") == "a b|$HOME|*|", "no shell interprets the arguments")
    #expect(try output("cat") == "", "standard input is empty")
    #expect(try output("true") == "")
  }

  @Test func reportsHowTheProgramFailed() {
    #expect(throws: ChildProcessError.exited(3)) { try output("sh", "-c", "echo secret; exit 3") }
    #expect(throws: ChildProcessError.killed(signal: 15)) { try output("sh", "-c", "kill -TERM $$") }
    #expect(throws: ChildProcessError.notStarted(ENOENT)) { try output("/no/such/program") }
  }

  /// No process outlives the timeout. The cases are a program that hangs, a program that hangs after it has closed its
  /// output, and a child process of a program.
  @Test(arguments: [("sleep 60471", "60471"), ("exec >&-; sleep 60472", "60472"), ("sleep 60473 & wait", "60473")])
  func killsACommandThatTakesTooLong(script: String, mark: String) async throws {
    let limit = TimeSpan.milliseconds(300)
    #expect(throws: ChildProcessError.timedOut(limit)) { try output("sh", "-c", script, within: limit) }
    let start = ContinuousClock.now
    while sleeps(for: mark) {
      try #require(ContinuousClock.now - start < .seconds(60), "the process still runs")
      try await Task.sleep(for: .milliseconds(1))
    }
  }

  @Test func anotherThreadKillsACommand() async throws {
    let killer = ChildProcessKiller()
    let thread = Task.detached {
      try ChildProcess.output(
        of: ["sh", "-c", "sleep 60474 & wait"], within: .seconds(60), atMost: 1 << 20, killer: killer)
    }
    let start = ContinuousClock.now
    while !sleeps(for: "60474") {
      try #require(ContinuousClock.now - start < .seconds(60), "the process does not start")
      try await Task.sleep(for: .milliseconds(1))
    }
    killer.kill()
    await #expect(throws: ChildProcessError.killed(signal: 9)) { try await thread.value }
    while sleeps(for: "60474") {
      try #require(ContinuousClock.now - start < .seconds(60), "the process still runs")
      try await Task.sleep(for: .milliseconds(1))
    }
    // A process that has ended is not killed again.
    killer.kill()
  }

  @Test func aCommandThatIsKilledBeforeItsStartDoesNotRun() {
    let killer = ChildProcessKiller()
    killer.kill()
    #expect(throws: ChildProcessError.killed(signal: 9)) {
      try ChildProcess.output(of: ["sleep", "60475"], within: .seconds(60), atMost: 1 << 20, killer: killer)
    }
  }

  /// Whether some process is `sleep SECONDS`.
  private func sleeps(for seconds: String) -> Bool {
    let processes = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
    return processes.contains { name in
      guard Int(name) != nil, let words = SystemFile.bytes(of: "/proc/\(name)/cmdline", atMost: 4_096) else {
        return false
      }
      return words == Array("sleep\0\(seconds)\0".utf8)
    }
  }

  @Test func readsALimitedOutput() throws {
    #expect(try output("yes", atMost: 10_000).utf8.count == 10_000)
  }

  /// A child with a listener's descriptor would keep the port after this process has ended.
  @Test func inheritsNoDescriptor() throws {
    let descriptor = dup(2)
    defer { close(descriptor) }
    #expect(descriptor > 2)
    #expect(try output("sh", "-c", "ls /proc/self/fd | wc -l") == "4\n", "0, 1, 2 and the descriptor of ls")
  }
}
