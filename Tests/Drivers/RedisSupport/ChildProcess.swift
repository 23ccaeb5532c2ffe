import Glibc
import Synchronization

/// Declared here, because the module of the C library lacks this extension.
@_silgen_name("posix_spawn_file_actions_addclosefrom_np")
@discardableResult
private func closeAll(of actions: UnsafeMutablePointer<posix_spawn_file_actions_t>, from first: Int32) -> Int32

/// A child process without input and output. Foundation's `Process` may crash when more than a thousand descriptors are
/// open, because it reads beyond the end of its list of them.
final class ChildProcess: Sendable {
  struct NotStarted: Error { let code: Int32 }

  let id: pid_t
  private let hasEnded = Mutex(false)

  init(_ program: String, _ arguments: [String]) throws {
    var actions = posix_spawn_file_actions_t()
    unsafe posix_spawn_file_actions_init(&actions)
    defer { unsafe posix_spawn_file_actions_destroy(&actions) }
    for descriptor in 0...2 as ClosedRange<Int32> {
      unsafe posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
    }
    unsafe closeAll(of: &actions, from: 3)
    var words = unsafe ([program] + arguments).map { unsafe strdup($0) } + [nil]
    defer { unsafe words.forEach { unsafe free($0) } }
    var environment: [UnsafeMutablePointer<CChar>?] = unsafe [nil]
    var id = pid_t()
    let code = unsafe posix_spawn(&id, program, &actions, nil, &words, &environment)
    guard code == 0 else { throw NotStarted(code: code) }
    self.id = id
  }

  var isRunning: Bool { !hasEnded(waiting: WNOHANG) }

  func waitUntilExit() { _ = hasEnded(waiting: 0) }

  private func hasEnded(waiting options: Int32) -> Bool {
    hasEnded.withLock { hasEnded in
      if !hasEnded { hasEnded = waitpid(id, nil, options) != 0 }
      return hasEnded
    }
  }
}
