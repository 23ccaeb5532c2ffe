import UpstreamSession
import WebSocketCodec

/// Parses and formats close rules. Each rule assigns a reaction to a range of close codes: `4000-4099: park`.
extension CloseRules {
  typealias Rule = (codes: ClosedRange<UInt16>, reaction: CloseReaction)

  static var expectation: String {
    "codes or ranges that a Close frame can have (1000 to 1003, 1005 for none, 1007 to 1014, 3000 to 4999) with one of "
      + CloseReaction.allCases.map(\.rawValue).joined(separator: ", ") + ", as in '4000-4099: park'"
  }

  /// Returns nil if `line` is malformed.
  static func rule(_ line: String) -> Rule? {
    let parts = line.split(separator: ":", omittingEmptySubsequences: false).map { $0.drop { $0 == " " } }
    guard parts.count == 2, let reaction = CloseReaction(rawValue: String(parts[1])) else { return nil }
    let bounds = parts[0].split(separator: "-", omittingEmptySubsequences: false).map { UInt16($0) }
    guard let first = bounds.first, let least = first, let last = bounds.last, let most = last, bounds.count <= 2,
      least <= most, isReceivable(least), isReceivable(most)
    else { return nil }
    return (least...most, reaction)
  }

  /// Whether a connection can end with this code: a code that a close frame may contain, or 1005 for a close frame
  /// without a code (RFC 6455 §7.4.1).
  private static func isReceivable(_ code: UInt16) -> Bool { code == 1005 || CloseFrame.isSendable(code) }

  /// Returns the rule as it is written in the file.
  static func text(_ rule: Rule) -> String {
    let (codes, reaction) = rule
    let range = codes.count == 1 ? "\(codes.lowerBound)" : "\(codes.lowerBound)-\(codes.upperBound)"
    return "\(range): \(reaction.rawValue)"
  }
}
