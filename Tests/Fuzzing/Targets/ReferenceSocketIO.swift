/// A Socket.IO packet, read from the front with prefixes: slow and simple.
struct ReferenceSocketIO: Equatable {
  let kind: UInt8
  let attachments: Int
  let namespace: [UInt8]
  let id: UInt64?
  let data: [UInt8]
  /// The number of elements of an event or an acknowledgement.
  let elements: Int

  /// Returns nil if `packet` is not a packet.
  init?(_ packet: [UInt8], attachments limit: Int) {
    var rest = packet[...]
    guard let first = rest.popFirst(), ("0"..."6").contains(Unicode.Scalar(first)) else { return nil }
    kind = first - 0x30
    let isBinary = kind >= 5
    var count = 0
    if isBinary {
      let digits = rest.prefix(while: Self.isDigit)
      rest = rest.dropFirst(digits.count)
      // More than 19 digits are refused, even if they begin with zeros.
      guard (1...19).contains(digits.count), rest.popFirst() == UInt8(ascii: "-"),
        let number = Int(String(decoding: digits, as: UTF8.self)), number <= limit
      else { return nil }
      count = number
    }
    attachments = count
    var namespace: [UInt8] = []
    if rest.first == UInt8(ascii: "/") {
      namespace = Array(rest.prefix { $0 != UInt8(ascii: ",") })
      rest = rest.dropFirst(namespace.count + 1)
    }
    self.namespace = namespace
    let digits = rest.prefix(while: Self.isDigit)
    guard digits.count <= 19 else { return nil }
    id = digits.isEmpty ? nil : UInt64(String(decoding: digits, as: UTF8.self))
    data = Array(rest.dropFirst(digits.count))
    guard let elements = Self.elements(kind, id, data, count) else { return nil }
    self.elements = elements
  }

  private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }

  /// Returns nil if the payload does not fit the type.
  private static func elements(_ kind: UInt8, _ id: UInt64?, _ data: [UInt8], _ attachments: Int) -> Int? {
    if data.isEmpty { return kind == 0 || kind == 1 || kind == 4 ? 0 : nil }
    // Half a surrogate pair is allowed, but `ReferenceJSONTree` would refuse it.
    var validator = ReferenceJSON(data, maximumDepth: 128)
    guard validator.document(), data[0] > 0x20 else { return nil }
    let tree = ReferenceJSONTree(pairingSurrogatesOf: data)
    switch kind {
    case 0: return "{[n".utf8.contains(data[0]) ? 0 : nil
    case 4: return "{[n\"".utf8.contains(data[0]) ? 0 : nil
    case 1: return nil
    default:
      guard case .array(let elements)? = tree else { return nil }
      if kind == 3 || kind == 6, id == nil { return nil }
      if kind == 2 || kind == 5 {
        switch elements.first {
        case .string: break
        case .word(let word) where word[0] == UInt8(ascii: "-") || isDigit(word[0]): break
        default: return nil
        }
      }
      if kind >= 5, !elements.allSatisfy({ isFilled($0, attachments) }) { return nil }
      return elements.count
    }
  }

  /// Whether every placeholder in a value has an attachment.
  private static func isFilled(_ value: ReferenceJSONTree, _ attachments: Int) -> Bool {
    switch value {
    case .string, .word: return true
    case .array(let elements): return elements.allSatisfy { isFilled($0, attachments) }
    case .object(let members):
      if case .word(let word)? = value.values("_placeholder").last, word == Array("true".utf8) {
        guard case .word(let number)? = value.values("num").last, number.allSatisfy(isDigit) else { return false }
        return number.count < 10 && (Int(String(decoding: number, as: UTF8.self)) ?? .max) < attachments
      }
      return members.allSatisfy { isFilled($0.value, attachments) }
    }
  }
}

extension ReferenceJSONTree {
  /// Like `init`, but also reads a text with halves of surrogate pairs, as if they were letters.
  fileprivate init?(pairingSurrogatesOf bytes: [UInt8]) {
    var bytes = bytes
    var index = 0
    while index + 5 < bytes.count {
      guard bytes[index] == UInt8(ascii: "\\") else {
        index += 1
        continue
      }
      if bytes[index + 1] == UInt8(ascii: "u"), bytes[index + 2] | 0x20 == UInt8(ascii: "d"), bytes[index + 3] > 0x37 {
        bytes[index + 2] = UInt8(ascii: "0")
        bytes[index + 3] = UInt8(ascii: "1")
      }
      index += 2
    }
    self.init(bytes)
  }
}
