import ByteStreams

/// The number of a term: a counter above 32 random bits.
///
/// If Redis has lost a term, another gateway may begin a term with the same counter. The random bits distinguish the
/// two terms, so that they have no push id in common.
package struct HolderTerm: Hashable, Comparable, Sendable {
  package let value: UInt64

  /// The counter starts at 1 and has 30 bits, since numbers in a journal have at most 62.
  package init(counter: UInt32, random: UInt32) {
    value = UInt64(min(max(counter, 1), 1 << 30 - 1)) << 32 | UInt64(random)
  }

  package var counter: UInt32 { UInt32(truncatingIfNeeded: value >> 32) }

  static let textLength = 16

  package func write(into output: inout ByteQueue) { output.append(hexadecimal: value, digits: Self.textLength) }

  /// Returns nil if the text is not in the form that `write` produces.
  package init?(_ text: Span<UInt8>) {
    guard text.count == Self.textLength, let value = text.hexadecimalValue(), value >> 32 > 0, value >> 62 == 0 else {
      return nil
    }
    self.value = value
  }

  package static func < (left: HolderTerm, right: HolderTerm) -> Bool { left.value < right.value }
}

/// The identity of a tenure, which the holder stores in the record and all of its scripts compare: `term:gateway:64
/// random bits`.
package struct HolderToken: Hashable, Sendable {
  package let term: HolderTerm
  package let gateway: GatewayID
  /// Random bits that distinguish two attempts of one gateway, since replies may be lost.
  package let bits: UInt64

  package init(term: HolderTerm, gateway: GatewayID, bits: UInt64) {
    self.term = term
    self.gateway = gateway
    self.bits = bits
  }

  static let textLength = HolderTerm.textLength + 1 + GatewayID.textLength + 1 + 16

  package func write(into output: inout ByteQueue) {
    term.write(into: &output)
    output.append(UInt8(ascii: ":"))
    gateway.write(into: &output)
    output.append(UInt8(ascii: ":"))
    output.append(hexadecimal: bits, digits: 16)
  }

  /// Returns nil if the text is not in the form that `write` produces.
  package init?(_ text: Span<UInt8>) {
    let first = HolderTerm.textLength
    let second = first + 1 + GatewayID.textLength
    guard text.count == Self.textLength, text[first] == UInt8(ascii: ":"), text[second] == UInt8(ascii: ":"),
      let term = HolderTerm(text.extracting(first: first)),
      let gateway = GatewayID(text.extracting(first + 1..<second)),
      let bits = text.extracting(second + 1..<text.count).hexadecimalValue()
    else { return nil }
    self.init(term: term, gateway: gateway, bits: bits)
  }
}

/// The terms of a session that gateways share, with the numbers of their first pushes, the oldest first. The field of
/// the record in `m` has the form `term@number term@number`.
package struct HolderTerms: Hashable, Sendable {
  package struct Begin: Hashable, Sendable {
    package let term: HolderTerm
    package let firstPush: UInt64

    package init(_ term: HolderTerm, firstPush: UInt64) {
      self.term = term
      self.firstPush = firstPush
    }
  }

  /// Maximum number of terms. The latest terms are kept. A journal keeps the same number of terms.
  package static let maximum = 64

  package private(set) var begins: [Begin] = []

  package init() {}

  package var last: Begin? { begins.last }

  /// Appends a term. First removes the earlier terms that begin at a later push than this term: they have stored no
  /// push, because their gateway was lost while it brought the session up to date.
  package mutating func append(_ begin: Begin) {
    while let last, last.firstPush > begin.firstPush { begins.removeLast() }
    begins.append(begin)
    if begins.count > Self.maximum { begins.removeFirst() }
  }

  package func appending(_ term: HolderTerm, firstPush: UInt64) -> HolderTerms {
    var result = self
    result.append(Begin(term, firstPush: firstPush))
    return result
  }

  /// Whether a session with these terms has all entries of a session with `other` terms, whose last push has the number
  /// `end`. This is true if the last of the `other` terms is also one of these terms, and if the term after it, if
  /// there is one, begins after the push `end`.
  package func extend(_ other: HolderTerms, endingAt end: UInt64) -> Bool {
    guard let last = other.last else { return true }
    guard let index = begins.firstIndex(where: { $0.term == last.term }) else { return false }
    return index + 1 == begins.count || end < begins[index + 1].firstPush
  }

  package func write(into output: inout ByteQueue) {
    for (index, begin) in begins.enumerated() {
      if index > 0 { output.append(UInt8(ascii: " ")) }
      begin.term.write(into: &output)
      output.append(UInt8(ascii: "@"))
      output.append(decimal: begin.firstPush)
    }
  }

  /// Returns nil if the text is malformed, the terms are not in order, or there are more than `maximum`.
  package init?(_ text: Span<UInt8>) {
    var start = 0
    while start < text.count {
      let end = text.firstIndex(of: UInt8(ascii: " "), from: start) ?? text.count
      let at = start + HolderTerm.textLength
      guard at < end, text[at] == UInt8(ascii: "@"), let term = HolderTerm(text.extracting(start..<at)),
        let number = text.extracting(at + 1..<end).decimalValue(), number > 0, begins.count < Self.maximum,
        begins.last.map({ $0.term < term && $0.firstPush <= UInt64(number) }) ?? true
      else { return nil }
      begins.append(Begin(term, firstPush: UInt64(number)))
      start = end + 1
      if start == text.count { return nil }
    }
  }
}
