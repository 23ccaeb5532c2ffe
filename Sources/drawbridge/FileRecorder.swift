import ByteStreams
import Configuration
import Gateway
import Reactor

/// Reads the files of a configuration, and remembers what they were, for `ConfigurationWatch`.
final class FileRecorder {
  /// One byte more than a file may have, so that the loader reports a larger file.
  private static let sizeLimit = ConfigurationLoader.maximumFileBytes + 1
  /// For a pipe. A person has time to type.
  private static let timeout = TimeSpan.seconds(10)

  private var files: ConfigurationFiles = [:]
  /// A pipe was read, which cannot be read again.
  private var hasReadPipe = false

  /// Nothing is watched if a reload would fail.
  var fingerprints: ConfigurationFiles { hasReadPipe ? [:] : files }

  /// The content of a file, which may be a pipe.
  func contents(of path: String) throws(FileError) -> [UInt8] {
    // Before it is read: a change after that is noticed.
    let fingerprint = FileFingerprint(of: path)
    files[path] = .some(fingerprint)
    let content = try SystemFile.contents(of: path, atMost: Self.sizeLimit, within: Self.timeout)
    // A file that was created meanwhile is read again, since its fingerprint is not known.
    if fingerprint == nil, FileFingerprint(of: path) == nil { hasReadPipe = true }
    return content
  }
}
