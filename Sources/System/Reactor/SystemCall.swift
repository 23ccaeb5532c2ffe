import CLinux
import Glibc

/// The system calls of this program, with the handling that each one needs: an interrupted call is retried, EAGAIN is a
/// value and not an error, and EBADF, which is always a bug of ours, stops the program.
enum SystemCall {
  @inline(__always)
  static func retrying(_ call: () -> Int) -> Int {
    while true {
      let result = call()
      if result >= 0 || errno != EINTR { return result }
    }
  }

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

  static func close(_ descriptor: Int32) {
    // Linux frees the descriptor even if close(2) is interrupted. Closing again could hit a descriptor that another
    // thread has just opened.
    let result = Glibc.close(descriptor)
    precondition(result == 0 || errno != EBADF, "a descriptor was closed twice")
  }

  static func setOption(_ descriptor: Int32, level: Int32, name: Int32, value: Int32) -> Bool {
    var value = value
    return unsafe setsockopt(descriptor, level, name, &value, socklen_t(MemoryLayout<Int32>.size)) == 0
  }

  static func option(_ descriptor: Int32, level: Int32, name: Int32) -> Int32 {
    var value: Int32 = 0
    var size = socklen_t(MemoryLayout<Int32>.size)
    let result = unsafe getsockopt(descriptor, level, name, &value, &size)
    return result == 0 ? value : errno
  }

  static func wallClockMilliseconds() -> Int64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
  }

  static func bootNanoseconds() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_BOOTTIME, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
  }

  static func monotonicNanoseconds() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
  }
}
