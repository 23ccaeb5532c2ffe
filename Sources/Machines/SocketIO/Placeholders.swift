import ByteStreams
import JSONCodec

/// The placeholders of a binary packet: `{"_placeholder":true,"num":0}` in the place of each attachment.
enum Placeholders {
  /// An object or an array around the current token.
  private struct Level {
    let isObject: Bool
    var isPlaceholder = false
    var number: Int?
    /// Number of invalid placeholders found before this level. Placeholders inside a placeholder do not count.
    let invalidBefore: Int
  }

  private enum Name { case placeholder, number, other }

  /// Whether every placeholder at `range`, which must be valid JSON, has the number of an attachment. Reads them as the
  /// official parser does: members may be in any order, other members are ignored, and of several members with the same
  /// name only the last counts.
  static func areValid(_ text: Span<UInt8>, _ range: Range<Int>, attachments: Int) -> Bool {
    used(text, range, attachments: attachments) != nil
  }

  /// Which attachments have a placeholder; nil if a placeholder does not have the number of an attachment.
  static func used(_ text: Span<UInt8>, _ range: Range<Int>, attachments: Int) -> [Bool]? {
    var used = [Bool](repeating: false, count: attachments)
    var walk = JSONText(range)
    var levels: [Level] = []
    var invalid = 0
    var name: Name?
    while let token = walk.token(text) {
      switch text[token.lowerBound] {
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        setValue(token, text, of: name, in: &levels)
        name = nil
        levels.append(Level(isObject: text[token.lowerBound] == UInt8(ascii: "{"), invalidBefore: invalid))
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        guard let closed = levels.popLast(), closed.isPlaceholder else { continue }
        invalid = closed.invalidBefore
        if let number = closed.number, number < attachments { used[number] = true } else { invalid &+= 1 }
      case UInt8(ascii: ","), UInt8(ascii: ":"): continue
      default:
        if levels.last?.isObject == true, name == nil {
          name = self.name(text.extracting(token))
        } else {
          setValue(token, text, of: name, in: &levels)
          name = nil
        }
      }
    }
    return invalid == 0 ? used : nil
  }

  private static func name(_ token: Span<UInt8>) -> Name {
    if JSONString.equals(token, placeholder) { return .placeholder }
    return JSONString.equals(token, number) ? .number : .other
  }

  private static let placeholder = Array("_placeholder".utf8)
  private static let number = Array("num".utf8)

  private static func setValue(_ token: Range<Int>, _ text: Span<UInt8>, of name: Name?, in levels: inout [Level]) {
    guard let name, !levels.isEmpty else { return }
    let value = text.extracting(token)
    switch name {
    case .placeholder: levels[levels.count - 1].isPlaceholder = value.equals("true")
    case .number: levels[levels.count - 1].number = value.decimalValue()
    case .other: return
    }
  }
}
