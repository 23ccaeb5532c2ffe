import ByteStreams

/// The preferences of the Prefer field that the gateway supports (RFC 7240). Unknown and malformed preferences are
/// ignored, as §2 requires. If `wait` is repeated, its first valid value is used.
package struct HTTPPreferences: Equatable, Sendable {
  /// `wait=n`: how long the client is willing to wait, in seconds (§4.3).
  package private(set) var wait: Int?
  /// `respond-async` (§4.1).
  package private(set) var respondAsync = false

  package init(_ fields: borrowing HTTPFields) {
    var wait: Int?
    var respondAsync = false
    fields.forEachElement(of: .prefer) { element in
      // `wait=10; foo=bar`: parameters of a preference are ignored.
      let semicolon = element.firstIndex(of: UInt8(ascii: ";")) ?? element.count
      let preference = element.extracting(first: semicolon).trimmingWhitespace()
      let equals = preference.firstIndex(of: UInt8(ascii: "=")) ?? preference.count
      let name = preference.extracting(first: equals).trimmingWhitespace()
      if name.equalsIgnoringCase("respond-async") {
        respondAsync = true
      } else if wait == nil, equals < preference.count, name.equalsIgnoringCase("wait") {
        let value = preference.extracting((equals &+ 1)..<preference.count).trimmingWhitespace()
        wait = value.withoutQuotes().deltaSeconds()
      }
    }
    self.wait = wait
    self.respondAsync = respondAsync
  }
}
