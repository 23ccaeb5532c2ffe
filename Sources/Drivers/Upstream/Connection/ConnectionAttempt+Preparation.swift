import ByteStreams
import Dialing
import Host
import Reactor
import TLSEngine
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Reads the secrets and files of an attempt. Secrets are read again for each attempt, since they may have changed.
/// Secrets are sent to configured origins only.
extension ConnectionAttempt {
  /// Reads everything that the attempt needs, off the loop: the files of templates, the credential, and the files of
  /// `upstream.tls`.
  func prepare() async throws(AttemptError) {
    values.random = UInt128(loop.entropy.next()) << 64 | UInt128(loop.entropy.next())
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
    // A login may be valid only for a short time after `${now}`, and a command may take long.
    values.now = loop.wallClock
    guard url.isSecure else { return }
    do throws(DialError) {
      let deadline = loop.now + settings.fileTimeout
      if settings.isConfigured(url), let context = preparedSettings.tlsContext {
        tlsContext = try await context.refreshed(until: deadline, cancellation, on: loop)
      } else {
        tlsContext = try await RefreshableTLSContext.make(
          settings.tls.forForeignOrigin, until: deadline, cancellation, on: loop)
      }
    } catch {
      throw AttemptError(error)
    }
  }

  private var reader: AttemptReader { AttemptReader(cancellation: cancellation, loop: loop) }

  private func secret(of path: String, until deadline: MonotonicTime) async throws(AttemptError) -> [UInt8] {
    guard let outcome = await reader.file(path, until: deadline) else { throw .cancelled }
    return try preparing { () throws(SecretError) in try Secret.content(of: path, outcome) }
  }

  private func output(of command: [String], within limit: TimeSpan) async throws(AttemptError) -> [UInt8] {
    guard let outcome = await reader.output(of: command, within: limit) else { throw .cancelled }
    return try preparing { () throws(SecretError) in try Secret.output(of: command[0], outcome) }
  }

  private func preparing<Value>(_ body: () throws(SecretError) -> Value) throws(AttemptError) -> Value {
    do throws(SecretError) {
      return try body()
    } catch {
      throw .preparationFailed(error.description)
    }
  }

  /// Adds the credential to the opening request as configured. Does nothing if the origin is not configured.
  func addCredential(to request: inout ClientHandshake.Request) throws(AttemptError) {
    guard settings.isConfigured(url) else { return }
    let use = settings.conventions.credential
    if let template = use.header {
      let text: [UInt8]
      do throws(TemplateError) {
        text = try template.rendered(with: values)
      } catch {
        throw .failed(
          AttemptReport(
            .upgrading, .preparation, "cannot create the header field of 'upstream.credential.header': \(error)"))
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

extension TLSClientSettings {
  /// The settings for an origin that is not configured but is the target of a redirection: the client certificate is
  /// not sent, and the configured server name does not apply.
  fileprivate var forForeignOrigin: TLSClientSettings {
    var settings = self
    settings.clientCertificate = nil
    settings.serverName = nil
    return settings
  }
}
