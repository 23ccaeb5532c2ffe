import Glibc
import TLSEngine
import TLSSupport

/// A directory for the files of one test, which is removed afterwards.
final class TestFiles {
  let directory: String
  private var written: Set<String> = []

  init() throws {
    var template = Array("/tmp/tls-test-XXXXXX".utf8CString)
    guard let path = mkdtemp(&template) else { throw SystemFailure(code: errno) }
    directory = String(cString: path)
  }

  deinit {
    for path in written { unlink(path) }
    rmdir(directory)
  }

  @discardableResult
  func write(_ name: String, _ text: String) throws -> String {
    let path = directory + "/" + name
    guard let file = fopen(path, "w") else { throw SystemFailure(code: errno) }
    fputs(text, file)
    fclose(file)
    written.insert(path)
    return path
  }

  func client(_ identity: TestIdentity) throws -> TLSClientSettings.ClientCertificate {
    .init(
      certificateFile: try write("client.pem", identity.certificatePEM),
      keyFile: try write("client-key.pem", identity.keyPEM))
  }

  struct SystemFailure: Error { let code: Int32 }
}

extension TLSContext {
  /// Creates a context from these settings and the current contents of their files.
  convenience init(_ settings: TLSClientSettings) throws(TLSSettingsError) {
    try self.init(settings, contents: settings.contents)
  }

  func reloadedIfChanged() throws(TLSSettingsError) -> TLSContext? {
    try rebuiltIfChanged(contents: settings.contents)
  }
}

extension TLSClientSettings {
  /// The contents of the files, except for files that cannot be read.
  fileprivate var contents: [String: [UInt8]] {
    var contents: [String: [UInt8]] = [:]
    for (_, path) in files {
      guard let file = fopen(path, "r") else { continue }
      defer { fclose(file) }
      var bytes = [UInt8](repeating: 0, count: Self.fileSizeLimit + 1)
      bytes.removeLast(bytes.count - fread(&bytes, 1, bytes.count, file))
      contents[path] = bytes
    }
    return contents
  }
}
