import CLinux

/// A failed system call: its name, the object that it was applied to, and the reason.
package struct SystemError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The call, as its manual page is named: `bind`, `epoll_ctl`.
  package let call: String
  /// `errno` after the call.
  package let code: Int32
  /// The object that the call was applied to, such as an address; may be empty.
  package let subject: String

  package init(_ call: String, code: Int32, subject: String = "") {
    self.call = call
    self.code = code
    self.subject = subject
  }

  package var description: String {
    let reason = Self.reason(of: code)
    return subject.isEmpty ? "\(call): \(reason)" : "\(call) \(subject): \(reason)"
  }

  /// The text of an `errno`, such as "Connection refused".
  package static func reason(of code: Int32) -> String {
    unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { buffer in
      guard let start = buffer.baseAddress else { return "error \(code)" }
      unsafe clinux_error_text(code, start, buffer.count)
      return unsafe String(cString: start)
    }
  }
}
