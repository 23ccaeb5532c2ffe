import Sessions

/// Names of profiles, as used in the file and by clients. A name has no dots, so that the paths of the profile's
/// settings are unambiguous.
enum ProfileName {
  static let maximumLength = 64
  /// Maximum number of profiles. Each profile adds some hundred settings, which are checked at the start and in each
  /// reload.
  static let maximumCount = 100

  static let expectation = "1 to \(maximumLength) letters, digits, '_' and '-'"

  static func isValid(_ name: String) -> Bool {
    name.utf8.count <= maximumLength && SessionName.isValid(name) && !name.utf8.contains(UInt8(ascii: "."))
  }
}
