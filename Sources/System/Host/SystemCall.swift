import CLinux
import Glibc

/// System calls, with the handling of errors that each call needs. An interrupted call is repeated. If a descriptor is
/// closed twice, which is always a bug of this program, the program stops.
@usableFromInline
package enum SystemCall {
  @inlinable
  @inline(__always)
  package static func retrying(_ call: () -> Int) -> Int {
    while true {
      let result = call()
      if result >= 0 || errno != EINTR { return result }
    }
  }

  package static func close(_ descriptor: Int32) {
    // An interrupted close(2) is not repeated. Linux has freed the descriptor, so a second call could close a
    // descriptor that another thread has just opened.
    let result = Glibc.close(descriptor)
    precondition(result == 0 || errno != EBADF, "a descriptor was closed twice")
  }

  package static func setOption(_ descriptor: Int32, level: Int32, name: Int32, value: Int32) -> Bool {
    var value = value
    return unsafe setsockopt(descriptor, level, name, &value, socklen_t(MemoryLayout<Int32>.size)) == 0
  }

  package static func option(_ descriptor: Int32, level: Int32, name: Int32) -> Int32 {
    var value: Int32 = 0
    var size = socklen_t(MemoryLayout<Int32>.size)
    let result = unsafe getsockopt(descriptor, level, name, &value, &size)
    return result == 0 ? value : errno
  }

  @inlinable
  package static func wallClockMilliseconds() -> Int64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
  }

  package static func bootNanoseconds() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_BOOTTIME, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
  }

  @inlinable
  package static func monotonicNanoseconds() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
  }
}
