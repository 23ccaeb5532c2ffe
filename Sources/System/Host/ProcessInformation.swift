import ByteStreams
import CLinux
import Glibc

/// Clocks, and what the kernel reports about this process.
@usableFromInline
package enum ProcessInformation {
  /// The current monotonic time. On a loop, use `LoopContext.now` instead.
  @inlinable
  package static func monotonicTime() -> MonotonicTime {
    MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds())
  }

  /// Like `monotonicTime()`, on a clock that does not stop while the machine is suspended.
  package static func bootTime() -> MonotonicTime { MonotonicTime(nanoseconds: SystemCall.bootNanoseconds()) }

  /// Milliseconds since the UNIX epoch.
  @inlinable
  package static func wallClockMilliseconds() -> Int64 { SystemCall.wallClockMilliseconds() }

  /// Seconds since the UNIX epoch.
  package static func wallClockSeconds() -> Int { Int(SystemCall.wallClockMilliseconds() / 1000) }

  /// CPU time used so far, user and system.
  package static func processorSeconds() -> Double {
    var usage = rusage()
    unsafe _ = getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    let user = Double(usage.ru_utime.tv_sec) + Double(usage.ru_utime.tv_usec) / 1e6
    return user + Double(usage.ru_stime.tv_sec) + Double(usage.ru_stime.tv_usec) / 1e6
  }

  /// Resident set size; 0 if it cannot be read.
  package static func residentBytes() -> Int {
    guard let text = SystemFile.read("/proc/self/statm") else { return 0 }
    let words = text.split(separator: " ")
    return words.count > 1 ? (Int(words[1]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE))) : 0
  }

  /// Number of open descriptors; 0 if it cannot be read.
  package static func openDescriptors() -> Int {
    guard let directory = unsafe opendir("/proc/self/fd") else { return 0 }
    defer { unsafe _ = closedir(directory) }
    var count = -3
    while unsafe readdir(directory) != nil { count += 1 }
    return max(0, count)
  }
}
