import COpenSSL

/// OpenSSL's error queue, of which each thread has one. The queue must be empty before each call whose failure will be
/// looked up in the queue. If it were not, an error that another connection of the same thread has left would be
/// reported for this connection.
enum ErrorQueue {
  /// One entry: the part of OpenSSL that failed, the number of the reason, and its text.
  struct Entry {
    let library: Int32
    let reason: Int32
    let text: String

    func isFrom(_ library: Int32, _ reason: Int32) -> Bool { self.library == library && self.reason == reason }
  }

  static func clear() {
    // Usually the queue is empty. `ERR_peek_error` finds that out faster than `ERR_clear_error`, which visits all
    // sixteen entries.
    if ERR_peek_error() != 0 { ERR_clear_error() }
  }

  /// Empties the queue and returns the most informative entry. This is the first entry of libssl, even if an entry of a
  /// cipher precedes it. If there is no entry of libssl, it is the oldest entry. Later entries only name the calls
  /// through which the error passed.
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

  /// Like `drain()`, but returns only the text, for messages that a person reads.
  static func drainText() -> String { drain()?.text ?? "OpenSSL reported no reason" }
}
