import ByteStreams
import Conventions
import Reactor
import UpstreamSession
import WebSocketCodec

/// Secrets: read anew for each dial, since they may have been replaced, and given to the configured origin only.
extension UpstreamLink {
  /// Reads the files of all templates and the credential, off the loop: reading blocks, and a command takes its time.
  func readSecrets() async throws(OpeningEnd) {
    let paths = settings.conventions.files.sorted()
    let source = settings.conventions.credential.source
    guard source != nil || !paths.isEmpty else { return }
    let answer = await BlockingThread.run { () -> Result<Secrets, SecretError> in
      do throws(SecretError) {
        return .success(try Secrets(files: paths, credential: source))
      } catch {
        return .failure(error)
      }
    }
    guard !isDiscarded else { throw .discarded }
    switch answer {
    case .success(let secrets):
      values.files = secrets.files
      values.credential = secrets.credential
    case .failure(let error):
      throw .failed(OpeningReport(.resolving, .preparation, error.description))
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

/// Percent-encoding of everything but unreserved characters (RFC 3986 §2.1).
enum PercentEncoder {
  static func encode(_ bytes: Span<UInt8>) -> String {
    let digits = Array("0123456789ABCDEF".utf8)
    var result: [UInt8] = []
    for index in bytes.indices {
      let byte = bytes[index]
      if ASCII.isUnreserved(byte) {
        result.append(byte)
      } else {
        result += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: result, as: UTF8.self)
  }
}
