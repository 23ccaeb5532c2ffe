import Glibc
import Host

/// The result of one read or write on a non-blocking descriptor.
package enum IOResult: Equatable, Sendable {
  /// Number of bytes that were transferred. At least 1, unless there were no bytes to write.
  case bytes(Int)
  /// There is no data to read, or no room to write, at present (EAGAIN).
  case wouldBlock
  /// The peer has finished sending. Only a read returns this.
  case endOfStream
  /// The descriptor has failed; the value is `errno`.
  case failed(Int32)
}

/// Reads and writes of channels. EAGAIN is a value and not an error. EBADF, which is always a bug of this program,
/// stops the program.
extension SystemCall {
  @inline(__always)
  static func classify(_ result: Int, isRead: Bool) -> IOResult {
    if result > 0 { return .bytes(result) }
    if result == 0 { return isRead ? .endOfStream : .wouldBlock }
    let code = errno
    if code == EAGAIN || code == EWOULDBLOCK { return .wouldBlock }
    precondition(code != EBADF, "a closed descriptor was used")
    return .failed(code)
  }

  static func receive(_ descriptor: Int32, _ room: UnsafeMutableRawBufferPointer) -> IOResult {
    guard let start = room.baseAddress else { preconditionFailure("the receive buffer is empty") }
    return classify(retrying { unsafe recv(descriptor, start, room.count, 0) }, isRead: true)
  }

  static func send(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> IOResult {
    guard let start = bytes.baseAddress else { return .bytes(0) }
    return classify(
      retrying { unsafe Glibc.send(descriptor, start, bytes.count, Int32(MSG_NOSIGNAL)) }, isRead: false)
  }

  /// A gathering send. `sendmsg`, unlike `writev`, can suppress SIGPIPE.
  static func send(_ descriptor: Int32, gathering vectors: UnsafeMutableBufferPointer<iovec>) -> IOResult {
    var message = unsafe msghdr()
    unsafe message.msg_iov = vectors.baseAddress
    unsafe message.msg_iovlen = vectors.count
    return classify(
      retrying { unsafe sendmsg(descriptor, &message, Int32(MSG_NOSIGNAL)) }, isRead: false)
  }
}
