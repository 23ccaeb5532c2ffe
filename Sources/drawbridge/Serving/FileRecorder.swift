import ByteStreams
import Configuration
import Gateway
import Host

/// Reads the files of a configuration, and remembers their fingerprints for `ConfigurationWatch`.
final class FileRecorder {
  /// One byte more than a file may have, so that the loader detects and reports a larger file.
  private static let sizeLimit = ConfigurationLoader.maximumFileBytes + 1
  /// Timeout for a pipe. A person has time to type.
  private static let timeout = TimeSpan.seconds(10)

  private var files: ConfigurationFiles = [:]
  /// Whether a pipe was read, which cannot be read again.
  private var hasReadPipe = false

  /// Empty after a pipe was read, since a reload would fail: then nothing is watched.
  var fingerprints: ConfigurationFiles { hasReadPipe ? [:] : files }

  /// The content of a file, which may be a pipe.
  func contents(of path: String) throws(FileError) -> [UInt8] {
    // Taken before the file is read, so that a later change is noticed.
    let fingerprint = FileFingerprint(of: path)
    files[path] = .some(fingerprint)
    let content = try SystemFile.contents(of: path, atMost: Self.sizeLimit, within: Self.timeout)
    // A file that was created meanwhile is read again, since its fingerprint is not known.
    if fingerprint == nil, FileFingerprint(of: path) == nil { hasReadPipe = true }
    return content
  }
}
