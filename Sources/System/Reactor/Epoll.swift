import CLinux
import Glibc
import Host

/// One epoll set.
///
/// Each descriptor is registered once, edge-triggered, for both directions, and never modified. A channel remembers
/// that it is ready until a call returns EAGAIN. So each connection needs only one `epoll_ctl`. Level-triggered events
/// would need as few calls, but a ready channel that no task reads would wake the loop again and again.
@safe
struct Epoll: ~Copyable {
  private let descriptor: Int32
  private let events: UnsafeMutableBufferPointer<epoll_event>

  struct Event {
    let data: UInt64
    let flags: UInt32

    var isReadable: Bool { flags & (CLINUX_EPOLLIN | CLINUX_EPOLLRDHUP) != 0 || isBroken }
    var isWritable: Bool { flags & CLINUX_EPOLLOUT != 0 || isBroken }
    var isHangup: Bool { flags & CLINUX_EPOLLRDHUP != 0 || isBroken }
    /// Both directions have ended, or the connection was reset.
    var isBroken: Bool { flags & (CLINUX_EPOLLERR | CLINUX_EPOLLHUP) != 0 }
  }

  init(eventsPerWait: Int) throws(SystemError) {
    descriptor = epoll_create1(O_CLOEXEC)
    unsafe events = .allocate(capacity: eventsPerWait)
    guard descriptor >= 0 else { throw SystemError("epoll_create1", code: errno) }
  }

  deinit {
    unsafe events.deallocate()
    if descriptor >= 0 { SystemCall.close(descriptor) }
  }

  func add(_ target: Int32, data: UInt64) throws(SystemError) {
    let interest = CLINUX_EPOLLIN | CLINUX_EPOLLOUT | CLINUX_EPOLLRDHUP | CLINUX_EPOLLET
    var event = unsafe clinux_epoll_event(interest, data)
    guard unsafe epoll_ctl(descriptor, EPOLL_CTL_ADD, target, &event) == 0 else {
      throw SystemError("epoll_ctl", code: errno)
    }
  }

  /// Removes a descriptor from the set. This is needed only if the descriptor stays open, or if another descriptor or
  /// process has the socket open. In other cases, the close of the descriptor removes it.
  func remove(_ target: Int32) {
    epoll_ctl(descriptor, EPOLL_CTL_DEL, target, nil)
  }

  /// Waits at most `milliseconds` (-1: forever) for events. Returns the number of events: 0 if there were none, or if a
  /// UNIX signal interrupted the wait.
  func wait(milliseconds: Int32) -> Int {
    let count = unsafe epoll_wait(descriptor, events.baseAddress, Int32(events.count), milliseconds)
    if count < 0 {
      precondition(errno == EINTR, "epoll_wait failed")
      return 0
    }
    return Int(count)
  }

  func event(at index: Int) -> Event {
    unsafe Event(data: clinux_epoll_data(&events[index]), flags: events[index].events)
  }
}
