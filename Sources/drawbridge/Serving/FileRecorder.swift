import ByteStreams
import Configuration
import Gateway
import Host

/// Reads the files of a configuration, and remembers their fingerprints for `ConfigurationWatch`.
final class FileRecorder {
  /// The number of bytes that are read: one more than a file may have, so that the loader detects and reports a larger
  /// file.
  private static let sizeLimit = ConfigurationLoader.maximumFileBytes + 1
  /// Timeout for a pipe. It leaves a person time to type.
  private static let timeout = TimeSpan.seconds(10)

  private var files: ConfigurationFiles = [:]
  /// Whether a pipe was read, which cannot be read again.
  private var hasReadPipe = false

  /// The fingerprints of the files. Empty if a pipe was read, so that no file is watched: a reload would fail, since a
  /// pipe cannot be read again.
  var fingerprints: ConfigurationFiles { hasReadPipe ? [:] : files }

  /// The content of a file, which may be a pipe.
  func contents(of path: String) throws(FileError) -> [UInt8] {
    // The fingerprint is taken before the file is read, so that a change during or after the read is detected.
    let fingerprint = FileFingerprint(of: path)
    files[path] = .some(fingerprint)
    let content = try SystemFile.contents(of: path, atMost: Self.sizeLimit, within: Self.timeout)
    // If there is still no fingerprint, the path leads to a pipe. If there is one now, the file was created during the
    // read. It will be read again, since the recorded fingerprint is nil.
    if fingerprint == nil, FileFingerprint(of: path) == nil { hasReadPipe = true }
    return content
  }
}
