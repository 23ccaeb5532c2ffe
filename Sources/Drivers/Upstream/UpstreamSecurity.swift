import ByteStreams
import Configuration
import Reactor
import TLSEngine
import Threading

/// The TLS context of one version of the TLS settings of a session, or of several with equal ones: built once, and again when one of
/// its files has changed.
///
/// It belongs to those settings (`SharedSettings`). A connection attempt refreshes the context of the settings that it was
/// started with, so an attempt that a reload has outdated cannot change what later attempts use.
final class UpstreamSecurity: Sendable {
  private let context: Locked<TLSContext>

  /// `contents`: of each of the files, by path. Blocks for no longer than `limit`.
  init(
    _ settings: TLSClientSettings, _ contents: [String: [UInt8]], within limit: TimeSpan
  ) throws(TLSSettingsError) {
    context = Locked(try Self.context(Self.building(settings, contents).wait(atMost: limit)))
  }

  /// The context, as its files are now.
  func refreshed(_ wait: SecurityWait) async throws(AttemptError) -> TLSContext {
    let current = context.withLock { $0 }
    let contents = try await Self.contents(of: current.settings, wait)
    let work = BlockingWork(on: Self.storeSubject) { () -> Result<TLSContext, TLSSettingsError> in
      .catching { () throws(TLSSettingsError) in try current.rebuiltIfChanged(contents: contents) ?? current }
    }
    let refreshed = try Self.reported(try await wait.outcome(of: work))
    context.withLock { $0 = refreshed }
    return refreshed
  }

  /// A context for one attempt.
  static func made(
    _ settings: TLSClientSettings, _ wait: SecurityWait
  ) async throws(AttemptError) -> TLSContext {
    let contents = try await contents(of: settings, wait)
    return try reported(try await wait.outcome(of: building(settings, contents)))
  }

  // MARK: Steps

  private typealias Built = Result<TLSContext, TLSSettingsError>

  /// What building a context may hang on: OpenSSL reads the system's store by itself.
  private static var storeSubject: String { "the system's certificates" }

  private static func building(_ settings: TLSClientSettings, _ contents: [String: [UInt8]]) -> BlockingWork<Built> {
    BlockingWork(on: storeSubject) {
      .catching { () throws(TLSSettingsError) in try TLSContext(settings, contents: contents) }
    }
  }

  private static func contents(
    of settings: TLSClientSettings, _ wait: SecurityWait
  ) async throws(AttemptError) -> [String: [UInt8]] {
    var contents: [String: [UInt8]] = [:]
    for file in settings.files {
      let work = NeededFile.work(
        file.path, atMost: TLSClientSettings.fileSizeLimit, within: wait.deadline - wait.loop.now)
      let outcome = try await wait.outcome(of: work)
      contents[file.path] = try reported { () throws(TLSSettingsError) in try content(of: file, outcome) }
    }
    return contents
  }

  static func content(
    of file: (role: TLSSettingsError.Role, path: String), _ outcome: NeededFile.Outcome
  ) throws(TLSSettingsError) -> [UInt8] {
    do throws(NeededFileError) {
      return try NeededFile.content(outcome)
    } catch {
      throw .unreadable(file.role, file: file.path, reason: error.description)
    }
  }

  private static func context(_ outcome: BlockingWork<Built>.Outcome) throws(TLSSettingsError) -> TLSContext {
    switch outcome {
    case .success(let built): return try built.get()
    case .failure(let error): throw .systemStoreUnreadable(reason: "\(error)\(NeededFile.key)")
    }
  }

  private static func reported(_ outcome: BlockingWork<Built>.Outcome) throws(AttemptError) -> TLSContext {
    try reported { () throws(TLSSettingsError) in try context(outcome) }
  }

  private static func reported<Value>(
    _ body: () throws(TLSSettingsError) -> Value
  ) throws(AttemptError) -> Value {
    do throws(TLSSettingsError) {
      return try body()
    } catch {
      throw .unprepared(error.description)
    }
  }
}

/// How long a connection attempt waits for the files of `upstream.tls`, and what ends the wait before.
struct SecurityWait {
  let deadline: MonotonicTime
  let cancellation: Cancellation
  let loop: LoopContext

  func outcome<Value>(of work: BlockingWork<Value>) async throws(AttemptError) -> BlockingWork<Value>.Outcome {
    guard let outcome = await cancellation.outcome(of: work, until: deadline, on: loop) else { throw .cancelled }
    return outcome
  }
}

extension Result {
  /// As `init(catching:)`, with the type of the error.
  fileprivate static func catching(_ body: () throws(Failure) -> Success) -> Result {
    do throws(Failure) {
      return .success(try body())
    } catch {
      return .failure(error)
    }
  }
}

extension TLSClientSettings {
  /// For an origin that a redirection led to: our certificate is not shown to it, nor is it asked to be whom we configured.
  var forForeignOrigin: TLSClientSettings {
    var settings = self
    settings.clientCertificate = nil
    settings.serverName = nil
    return settings
  }
}
