import ByteStreams
import Configuration
import Reactor
import TLSEngine
import Threading

/// The TLS context of one version of a session's settings: built once, and again when one of its files has changed.
///
/// It belongs to those settings (`SharedSettings`). A connection attempt refreshes the context of the settings that it was
/// started with, so an attempt that a reload has outdated cannot change what later attempts use.
final class UpstreamSecurity: Sendable {
  private let context: Locked<TLSContext>

  /// Blocks, each file for no longer than `limit`.
  init(_ settings: TLSClientSettings, within limit: TimeSpan) throws(TLSSettingsError) {
    var contents: [String: [UInt8]] = [:]
    for file in settings.files {
      let work = NeededFile.work(file.path, atMost: TLSClientSettings.fileSizeLimit, within: limit)
      contents[file.path] = try Self.content(of: file, work.wait(atMost: limit))
    }
    context = Locked(try Self.context(Self.building(settings, contents).wait(atMost: limit)))
  }

  /// The context, as its files are now.
  func refreshed(for link: UpstreamLink, until deadline: MonotonicTime) async throws(OpeningEnd) -> TLSContext {
    let current = context.withLock { $0 }
    let contents = try await Self.contents(of: current.settings, for: link, until: deadline)
    let work = BlockingWork(on: Self.storeSubject) { () -> Result<TLSContext, TLSSettingsError> in
      .catching { () throws(TLSSettingsError) in try current.rebuiltIfChanged(contents: contents) ?? current }
    }
    let refreshed = try Self.reported(await link.outcome(of: work, until: deadline))
    context.withLock { $0 = refreshed }
    return refreshed
  }

  /// A context for one attempt.
  static func made(
    _ settings: TLSClientSettings, for link: UpstreamLink, until deadline: MonotonicTime
  ) async throws(OpeningEnd) -> TLSContext {
    let contents = try await contents(of: settings, for: link, until: deadline)
    return try reported(await link.outcome(of: building(settings, contents), until: deadline))
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
    of settings: TLSClientSettings, for link: UpstreamLink, until deadline: MonotonicTime
  ) async throws(OpeningEnd) -> [String: [UInt8]] {
    var contents: [String: [UInt8]] = [:]
    for file in settings.files {
      let work = NeededFile.work(file.path, atMost: TLSClientSettings.fileSizeLimit, within: deadline - link.loop.now)
      let outcome = try await link.outcome(of: work, until: deadline)
      contents[file.path] = try reported { () throws(TLSSettingsError) in try content(of: file, outcome) }
    }
    return contents
  }

  private static func content(
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

  private static func reported(_ outcome: BlockingWork<Built>.Outcome) throws(OpeningEnd) -> TLSContext {
    try reported { () throws(TLSSettingsError) in try context(outcome) }
  }

  private static func reported<Value>(
    _ body: () throws(TLSSettingsError) -> Value
  ) throws(OpeningEnd) -> Value {
    do throws(TLSSettingsError) {
      return try body()
    } catch {
      throw .unprepared(error.description)
    }
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
