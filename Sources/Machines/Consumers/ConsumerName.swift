import ByteStreams

/// Names of consumers, as used in paths of the API, and for webhooks in the configuration.
package enum ConsumerName {
  /// Maximum bytes of a name.
  package static let maximumLength = 64

  package static let expectation =
    "1 to \(maximumLength) letters, digits, dots, hyphens and underscores, not only dots"

  package static func isValid(_ name: Span<UInt8>) -> Bool {
    guard !name.isEmpty, name.count <= maximumLength else { return false }
    // Clients and proxies remove `.` and `..` from a path (RFC 3986, section 5.2.4).
    var isOnlyDots = true
    for index in name.indices {
      // All unreserved characters except the tilde.
      guard ASCII.isUnreserved(name[index]), name[index] != UInt8(ascii: "~") else { return false }
      if name[index] != UInt8(ascii: ".") { isOnlyDots = false }
    }
    return !isOnlyDots
  }
}
