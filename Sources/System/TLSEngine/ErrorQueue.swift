import COpenSSL

/// OpenSSL's list of errors, one a thread. It must be empty before each call whose failure will be looked up there:
/// what another connection of the same thread left behind would be taken for this one's.
enum ErrorQueue {
  /// One entry: which part of OpenSSL complains, of what, and in its words.
  struct Entry {
    let library: Int32
    let reason: Int32
    let text: String

    func isFrom(_ library: Int32, _ reason: Int32) -> Bool { self.library == library && self.reason == reason }
  }

  static func clear() {
    // Looking costs less than clearing, which goes through all sixteen places for an entry.
    if ERR_peek_error() != 0 { ERR_clear_error() }
  }

  /// Removes everything, and answers what tells most: TLS's own first complaint, which a cipher's may come before; else the
  /// oldest, as later ones only tell through which calls it passed.
  static func drain() -> Entry? {
    var chosen: UInt = 0
    while true {
      let code = ERR_get_error()
      if code == 0 { break }
      let isFirstOfTLS = ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_LIB(chosen) != ERR_LIB_SSL
      if chosen == 0 || isFirstOfTLS { chosen = code }
    }
    guard chosen != 0 else { return nil }
    let text = unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
      unsafe copenssl_reason_text(chosen, buffer.baseAddress, Int32(buffer.count))
      return unsafe buffer.baseAddress.map { unsafe String(cString: $0) } ?? ""
    }
    return Entry(library: ERR_GET_LIB(chosen), reason: ERR_GET_REASON(chosen), text: text)
  }

  /// The same in words, where only a person will look at it.
  static func drainText() -> String { drain()?.text ?? "no reason was given" }
}
