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

  static func clear() { ERR_clear_error() }

  /// Removes everything, and answers the oldest entry: later ones only tell through which calls it passed.
  static func drain() -> Entry? {
    let code = ERR_get_error()
    guard code != 0 else { return nil }
    ERR_clear_error()
    let text =
      if let reason = unsafe ERR_reason_error_string(code) { unsafe String(cString: reason) } else { "error \(code)" }
    return Entry(library: ERR_GET_LIB(code), reason: ERR_GET_REASON(code), text: text)
  }

  /// The same in words, where only a person will look at it.
  static func drainText() -> String { drain()?.text ?? "no reason was given" }
}
