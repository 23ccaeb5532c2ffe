/// What a range of close codes means to one upstream, as an operator writes it: `4000-4099: park`.
package struct CloseCodeRule: Equatable, Sendable {
  package enum Reaction: String, CaseIterable, Sendable {
    case backoff
    case refreshCredential = "refresh-credential"
    case park
    case stop
  }

  package let codes: ClosedRange<UInt16>
  package let reaction: Reaction

  /// Codes that an upstream can send and whose meaning it may change: 1000, and 3000 to 4999 (RFC 6455 §7.4.2).
  static let expectation =
    "codes or ranges (1000, 3000 to 4999) with one of "
    + Reaction.allCases.map(\.rawValue).joined(separator: ", ") + ", as in '4000-4099: park'"

  /// nil where `line` is not what is expected.
  package init?(_ line: String) {
    let parts = line.split(separator: ":", omittingEmptySubsequences: false).map { $0.drop { $0 == " " } }
    guard parts.count == 2, let reaction = Reaction(rawValue: String(parts[1])) else { return nil }
    let bounds = parts[0].split(separator: "-", omittingEmptySubsequences: false).map { UInt16($0) }
    guard let first = bounds.first, let least = first, let last = bounds.last, let most = last, bounds.count <= 2,
      least <= most, (least, most) == (1000, 1000) || least >= 3000 && most <= 4999
    else { return nil }
    codes = least...most
    self.reaction = reaction
  }

  /// As it would stand in the file.
  package var text: String {
    let codes = codes.count == 1 ? "\(codes.lowerBound)" : "\(codes.lowerBound)-\(codes.upperBound)"
    return "\(codes): \(reaction.rawValue)"
  }
}
