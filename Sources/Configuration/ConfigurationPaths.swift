/// The folders to which the relative paths of a configuration refer.
package struct ConfigurationPaths {
  /// The absolute path of the working directory.
  let workingDirectory: String
  /// Returns whether there is a file with this path. The caller passes this function, so that the loader itself does
  /// not access the file system.
  let exists: (String) -> Bool

  package init(workingDirectory: String, exists: @escaping (String) -> Bool) {
    self.workingDirectory = workingDirectory
    self.exists = exists
  }

  /// Returns `path` as seen from `folder`.
  fileprivate static func join(_ folder: String, _ path: String) -> String {
    if path.hasPrefix("/") { return path }
    let rest = path.hasPrefix("./") ? String(path.dropFirst(2)) : path
    return folder.hasSuffix("/") ? folder + rest : "\(folder)/\(rest)"
  }

  /// Returns the absolute path of the folder of a configuration file. For a pipe or a descriptor, which has no folder,
  /// returns the working directory.
  fileprivate func folder(of file: String) -> String {
    let path = Self.join(workingDirectory, file)
    guard !path.hasPrefix("/dev/"), !path.hasPrefix("/proc/"), let slash = path.lastIndex(of: "/") else {
      return workingDirectory
    }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }
}

/// Makes the paths of a configuration absolute. Paths in the file are relative to the folder of the file. Other paths
/// are relative to the working directory.
final class PathResolver {
  private let paths: ConfigurationPaths?
  private let folder: String
  /// Whether the settings of the file are being read, and not variables or flags.
  var isInFile = false
  private(set) var warnings: [ConfigurationError] = []

  /// - Parameter paths: nil if paths are not changed.
  init(_ paths: ConfigurationPaths?, file: String?) {
    self.paths = paths
    folder = file.flatMap { paths?.folder(of: $0) } ?? paths?.workingDirectory ?? ""
  }

  /// - Parameter place: the place of the setting, for a warning.
  func absolute(_ path: String, at place: String) -> String {
    guard let paths, !path.isEmpty, !path.hasPrefix("/") else { return path }
    let fromWorkingDirectory = ConfigurationPaths.join(paths.workingDirectory, path)
    guard isInFile else { return fromWorkingDirectory }
    let fromFile = ConfigurationPaths.join(folder, path)
    // Earlier versions took all paths as relative to the working directory, so a file that is found only there is still
    // used.
    guard fromFile != fromWorkingDirectory, !paths.exists(fromFile), paths.exists(fromWorkingDirectory) else {
      return fromFile
    }
    let message =
      "'\(path)' is used from the working directory, because there is no \(fromFile): the paths in a file are relative to the folder of the file. "
      + "Write \(fromWorkingDirectory), or move the file '\(path)'"
    if !warnings.contains(where: { $0.message == message }) {
      warnings.append(ConfigurationError(place: place, message: message))
    }
    return fromWorkingDirectory
  }

  /// Returns a text with the paths of its `${file:PATH}` made absolute.
  func absoluteReferences(in text: String, at place: String) -> String {
    var result = ""
    var rest = Substring(text)
    while let start = rest.firstRange(of: "${file:"), let end = rest[start.upperBound...].firstIndex(of: "}") {
      // `$${` is not a reference.
      let isEscaped = rest[..<start.lowerBound].last == "$"
      let path = String(rest[start.upperBound..<end])
      result += rest[..<start.upperBound] + (isEscaped ? path : absolute(path, at: place))
      rest = rest[end...]
    }
    return result + rest
  }
}
