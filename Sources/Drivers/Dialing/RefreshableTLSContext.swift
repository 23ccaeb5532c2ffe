import ByteStreams
import Reactor
import TLSEngine
import Threading

/// The TLS context for one set of TLS settings. All sessions with equal TLS settings use the same object. The
/// context is rebuilt when one of its files has changed.
///
/// The object belongs to `PreparedSettings`. A connection attempt refreshes the context that belongs to its own
/// settings. So an attempt with outdated settings does not affect later attempts.
package final class RefreshableTLSContext: Sendable {
  private let context: Locked<TLSContext>

  /// `contents`: the content of each file, by path. Blocks for at most `limit`.
  init(
    _ settings: TLSClientSettings, _ contents: [String: [UInt8]], within limit: TimeSpan
  ) throws(TLSSettingsError) {
    context = Locked(try Self.context(Self.building(settings, contents).wait(atMost: limit)))
  }

  /// The context for the current content of its files.
  package func refreshed(
    until deadline: MonotonicTime, _ cancellation: Cancellation, on loop: LoopContext
  ) async throws(DialError) -> TLSContext {
    let wait = FileWait(deadline: deadline, cancellation: cancellation, loop: loop)
    let current = context.withLock { $0 }
    let contents = try await Self.contents(of: current.settings, wait)
    let work = BlockingWork(on: Self.storeSubject) { () -> Result<TLSContext, TLSSettingsError> in
      .catching { () throws(TLSSettingsError) in try current.rebuiltIfChanged(contents: contents) ?? current }
    }
    let refreshed = try Self.reported(try await wait.outcome(of: work))
    context.withLock { $0 = refreshed }
    return refreshed
  }

  /// Makes a context that only one connection attempt uses.
  package static func make(
    _ settings: TLSClientSettings, until deadline: MonotonicTime, _ cancellation: Cancellation, on loop: LoopContext
  ) async throws(DialError) -> TLSContext {
    let wait = FileWait(deadline: deadline, cancellation: cancellation, loop: loop)
    let contents = try await contents(of: settings, wait)
    return try reported(try await wait.outcome(of: building(settings, contents)))
  }

  // MARK: Steps

  private typealias Built = Result<TLSContext, TLSSettingsError>

  /// The subject of the error if the creation of a context hangs: the system's certificates, since OpenSSL itself reads
  /// them.
  private static var storeSubject: String { "the system's certificates" }

  private static func building(_ settings: TLSClientSettings, _ contents: [String: [UInt8]]) -> BlockingWork<Built> {
    BlockingWork(on: storeSubject) {
      .catching { () throws(TLSSettingsError) in try TLSContext(settings, contents: contents) }
    }
  }

  private static func contents(
    of settings: TLSClientSettings, _ wait: FileWait
  ) async throws(DialError) -> [String: [UInt8]] {
    var contents: [String: [UInt8]] = [:]
    for file in settings.files {
      let work = RequiredFile.work(
        file.path, atMost: TLSClientSettings.fileSizeLimit, within: wait.deadline - wait.loop.now)
      let outcome = try await wait.outcome(of: work)
      contents[file.path] = try reported { () throws(TLSSettingsError) in try content(of: file, outcome) }
    }
    return contents
  }

  static func content(
    of file: (role: TLSSettingsError.Role, path: String), _ outcome: RequiredFile.Outcome
  ) throws(TLSSettingsError) -> [UInt8] {
    do throws(RequiredFileError) {
      return try RequiredFile.content(outcome)
    } catch {
      throw .unreadable(file.role, file: file.path, reason: error.description)
    }
  }

  private static func context(_ outcome: BlockingWork<Built>.Outcome) throws(TLSSettingsError) -> TLSContext {
    switch outcome {
    case .success(let built): return try built.get()
    case .failure(let error): throw .systemStoreUnreadable(reason: "\(error)\(RequiredFile.timeoutHint)")
    }
  }

  private static func reported(_ outcome: BlockingWork<Built>.Outcome) throws(DialError) -> TLSContext {
    try reported { () throws(TLSSettingsError) in try context(outcome) }
  }

  private static func reported<Value>(
    _ body: () throws(TLSSettingsError) -> Value
  ) throws(DialError) -> Value {
    do throws(TLSSettingsError) {
      return try body()
    } catch {
      throw .failed(.resolving, .preparation, ReportText(error.description))
    }
  }
}

/// Limits how long a connection attempt waits for files: by a deadline and by cancellation.
private struct FileWait {
  let deadline: MonotonicTime
  let cancellation: Cancellation
  let loop: LoopContext

  func outcome<Value>(of work: BlockingWork<Value>) async throws(DialError) -> BlockingWork<Value>.Outcome {
    guard let outcome = await cancellation.outcome(of: work, until: deadline, on: loop) else { throw .cancelled }
    return outcome
  }
}

extension Result {
  /// Like `init(catching:)`, with the type of the error.
  fileprivate static func catching(_ body: () throws(Failure) -> Success) -> Result {
    do throws(Failure) {
      return .success(try body())
    } catch {
      return .failure(error)
    }
  }
}
