import ByteStreams
import UpstreamProtocol
import Reactor
import UpstreamSession
import WebSocketCodec

/// Secrets: read anew for each dial, since they may have been replaced, and given to the configured origin only.
extension UpstreamLink {
  /// Reads all that the attempt needs, off the loop: the files of templates, the credential, the files of `upstream.tls`.
  func prepare() async throws(OpeningEnd) {
    let deadline = loop.now + settings.fileTimeout
    for path in settings.conventions.files.sorted() {
      values.files[path] = try await secret(of: path, until: deadline)
    }
    if let source = settings.conventions.credential.source {
      let credential: [UInt8]
      switch source {
      case .environment(let name):
        credential = try preparing { () throws(SecretError) in try Secret.variable(name) }
      case .file(let path): credential = try await secret(of: path, until: deadline)
      case .command(let command, let limit): credential = try await output(of: command, within: limit)
      }
      try preparing { () throws(SecretError) in if credential.isEmpty { throw .empty } }
      values.credential = credential
    }
    if url.isSecure {
      let deadline = loop.now + settings.fileTimeout
      if settings.isConfigured(url), let security = sharedSettings.security {
        tlsContext = try await security.refreshed(for: self, until: deadline)
      } else {
        tlsContext = try await UpstreamSecurity.made(settings.tls.forForeignOrigin, for: self, until: deadline)
      }
    }
    driver.prepared(self)
  }

  /// Waits for `work` until `deadline`, or the end of this link.
  func outcome<Value>(
    of work: BlockingWork<Value>, until deadline: MonotonicTime
  ) async throws(OpeningEnd) -> BlockingWork<Value>.Outcome {
    let wait = BlockingWait { work.giveUp() }
    let timer = loop.schedule(at: deadline, wait)
    blockingWait = wait
    let outcome = await work.value()
    loop.cancel(timer)
    blockingWait = nil
    guard !isDiscarded else { throw .discarded }
    return outcome
  }

  private func secret(of path: String, until deadline: MonotonicTime) async throws(OpeningEnd) -> [UInt8] {
    let work = NeededFile.work(path, atMost: CredentialUse.maximumBytes, within: deadline - loop.now)
    let outcome = try await outcome(of: work, until: deadline)
    return try preparing { () throws(SecretError) in try Secret.content(of: path, outcome) }
  }

  private func output(of command: [String], within limit: TimeSpan) async throws(OpeningEnd) -> [UInt8] {
    let work = BlockingWork(on: "command " + command.joined(separator: " ")) { () -> Secret.Output in
      do throws(ChildProcessError) {
        return .success(try ChildProcess.output(of: command, within: limit, atMost: CredentialUse.maximumBytes + 1))
      } catch {
        return .failure(error)
      }
    }
    let outcome = try await outcome(of: work, until: loop.now + limit + UpstreamSettings.killTime)
    return try preparing { () throws(SecretError) in try Secret.output(of: command[0], outcome) }
  }

  private func preparing<Value>(_ body: () throws(SecretError) -> Value) throws(OpeningEnd) -> Value {
    do throws(SecretError) {
      return try body()
    } catch {
      throw .unprepared(error.description)
    }
  }

  /// Puts the credential where the opening request is to have it.
  func addCredential(to request: inout ClientHandshake.Request) throws(OpeningEnd) {
    guard settings.isConfigured(url) else { return }
    let use = settings.conventions.credential
    if let template = use.header {
      let text: [UInt8]
      do throws(TemplateError) {
        text = try template.rendered(with: values)
      } catch {
        throw .failed(OpeningReport(.upgrading, .preparation, "'upstream.credential.header' cannot be made: \(error)"))
      }
      let parts = text.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
      let name = String(decoding: parts[0], as: UTF8.self)
      let value = String(decoding: parts[1].drop { $0 == 0x20 }, as: UTF8.self)
      request.fields.removeAll { $0.name.lowercased() == name.lowercased() }
      request.fields.append((name, value))
    }
    if !use.query.isEmpty, let credential = values.credential {
      let separator = request.target.contains("?") ? "&" : "?"
      request.target += "\(separator)\(use.query)=\(PercentEncoder.encode(credential.span))"
    }
  }
}

/// The wait of a link for work that blocks: ended by its deadline, or with the link.
final class BlockingWait: TimerTarget {
  private let giveUp: () -> Void

  init(giveUp: @escaping () -> Void) { self.giveUp = giveUp }

  func timerFired(_ token: Int) { giveUp() }

  func end() { giveUp() }
}
