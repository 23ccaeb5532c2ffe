import COpenSSL

/// The TLS versions still in use: RFC 8996 deprecated all older versions.
package enum TLSVersion: Int, CaseIterable, Comparable, Sendable, CustomStringConvertible {
  /// RFC 5246.
  case v1_2 = 12
  /// RFC 8446.
  case v1_3 = 13

  /// The version as written in the configuration: `1.2` or `1.3`.
  package var number: String {
    switch self {
    case .v1_2: "1.2"
    case .v1_3: "1.3"
    }
  }

  package static func < (left: TLSVersion, right: TLSVersion) -> Bool { left.rawValue < right.rawValue }

  package var description: String { "TLS \(number)" }

  /// The version number in the protocol.
  var wireNumber: Int32 {
    switch self {
    case .v1_2: TLS1_2_VERSION
    case .v1_3: TLS1_3_VERSION
    }
  }
}
