import ByteStreams

/// The id that the gateway gives to a call, in place of the client's own id.
///
/// The id is random, so that no other client can guess it and cause a reply to the call. It is unique among the calls
/// of a session, which `CallTable` checks. It has the JSON type of the client's id: some upstreams accept only numbers,
/// others only strings.
package struct CallID: Hashable, Sendable {
  package enum Form: Hashable, Sendable {
    /// 14 digits, without a leading zero. A 64-bit float (IEEE 754) represents such a number exactly. Upstreams that
    /// write numbers with 14 significant digits (Lua's cjson) repeat it exactly, too.
    case number
    /// A UUID of version 4 (RFC 9562): 36 characters, which is also the maximum length of an id in OCPP.
    case string
    /// The id of an acknowledgement. It is not random: it consists of bits of the term and the number of the delivery.
    case acknowledgement
  }

  package let form: Form
  private let value: UInt128

  private static var smallestNumber: UInt128 { 10_000_000_000_000 }
  private static var numberDigits: Int { 14 }
  /// In characters.
  private static var uuidLength: Int { 36 }

  /// - Parameter random: 128 random bits.
  package init(_ form: Form, random: UInt128) {
    self.form = form
    switch form {
    case .number: value = Self.smallestNumber + random % (9 * Self.smallestNumber)
    case .acknowledgement: value = random
    case .string:
      // Version 4, and variant 10.
      value = random & ~(0xF << 76) & ~(3 << 62) | 4 << 76 | 2 << 62
    }
  }

  /// The id of the acknowledgement of an event.
  package init(acknowledgement id: UInt64) {
    form = .acknowledgement
    value = UInt128(id)
  }

  /// The type of a client's id, by its token.
  package static func form(of token: Span<UInt8>) -> Form { token[0] == UInt8(ascii: "\"") ? .string : .number }

  // MARK: JSON

  /// Reads a JSON token. Returns nil unless the token has the form of a gateway's id. The digits of a UUID may be in
  /// either case, since some upstreams change the case.
  package init?(token: Span<UInt8>) {
    if token.count == Self.numberDigits, let number = token.decimalValue(), token[0] != UInt8(ascii: "0") {
      form = .number
      value = UInt128(number)
      return
    }
    guard token.count == Self.uuidLength + 2, token[0] == UInt8(ascii: "\""),
      token[token.count - 1] == UInt8(ascii: "\"")
    else { return nil }
    var value: UInt128 = 0
    for index in 0..<Self.uuidLength {
      let byte = token[index + 1]
      if Self.isDash(index) {
        guard byte == UInt8(ascii: "-") else { return nil }
      } else {
        guard let digit = Self.hexDigit(byte) else { return nil }
        value = value << 4 | UInt128(digit)
      }
    }
    form = .string
    self.value = value
  }

  /// The JSON token.
  package var token: [UInt8] {
    guard form == .string else { return Array(String(UInt64(value)).utf8) }
    var token = ByteQueue(capacity: Self.uuidLength + 2)
    token.append(UInt8(ascii: "\""))
    write(into: &token)
    token.append(UInt8(ascii: "\""))
    return token.copyBytes()
  }

  /// Writes the id without quotation marks.
  package func write(into output: inout ByteQueue) {
    guard form == .string else { return output.append(decimal: Int(UInt64(value))) }
    var shift: UInt128 = 128
    for index in 0..<Self.uuidLength {
      if Self.isDash(index) {
        output.append(UInt8(ascii: "-"))
      } else {
        shift -= 4
        let digit = UInt8(truncatingIfNeeded: value >> shift & 0xF)
        output.append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
      }
    }
  }

  private static func isDash(_ index: Int) -> Bool { index == 8 || index == 13 || index == 18 || index == 23 }

  private static func hexDigit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}

extension CallID {
  /// Returns `message` with this id's token in `range`.
  package func replacing(_ range: Range<Int>, in message: Span<UInt8>) -> [UInt8] {
    let token = token
    var result = ByteQueue(capacity: message.count - range.count + token.count)
    result.append(message.extracting(first: range.lowerBound))
    result.append(token.span)
    result.append(message.extracting(range.upperBound..<message.count))
    return result.copyBytes()
  }
}
