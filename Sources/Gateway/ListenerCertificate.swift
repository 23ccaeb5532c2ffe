import ByteStreams
import Configuration
import Host
import Reactor
import TLSEngine

/// Reads the certificate of the HTTPS listeners.
enum ListenerCertificate {
  /// Timeout for each file.
  private static let fileTimeout = TimeSpan.seconds(10)

  /// Blocks, at most for the timeout of each file.
  static func read(_ settings: TLSServerSettings) throws(TLSSettingsError) -> TLSServerContext {
    try TLSServerContext(settings, contents: try contents(of: settings))
  }

  static func contents(of settings: TLSServerSettings) throws(TLSSettingsError) -> [String: [UInt8]] {
    var contents: [String: [UInt8]] = [:]
    for (role, path) in settings.files where contents[path] == nil {
      let work = BlockingWork(on: path) { () -> Result<[UInt8], FileError> in
        do throws(FileError) {
          return .success(
            try SystemFile.contents(of: path, atMost: TLSClientSettings.fileSizeLimit + 1, within: fileTimeout))
        } catch {
          return .failure(error)
        }
      }
      switch work.wait(atMost: fileTimeout) {
      case .success(.success(let bytes)): contents[path] = bytes
      case .success(.failure(let error)): throw .unreadable(role, file: path, reason: error.description)
      case .failure(let error): throw .unreadable(role, file: path, reason: error.description)
      }
    }
    return contents
  }
}

extension SettingProblem {
  /// A problem with the files of `listeners.tls`.
  init(ofListeners error: TLSSettingsError) {
    let name =
      switch error {
      case .unreadable(let role, _, _), .noCertificate(let role, _), .malformedCertificate(let role, _, _, _):
        switch role {
        case .authorities, .clientAuthorities: "client_ca"
        case .certificate, .serverCertificate: "certificate"
        case .key, .serverKey: "key"
        }
      case .noPrivateKey, .encryptedPrivateKey, .keyDoesNotMatchCertificate: "key"
      default: "certificate"
      }
    self.init("listeners.tls." + name, .none, error.description)
  }
}
