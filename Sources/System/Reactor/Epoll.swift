import CLinux
import Glibc

/// One epoll set.
///
/// Descriptors are registered once, edge-triggered, for both directions, and never changed again: a channel latches what
/// it was told until a call answers 'not now'. That is one `epoll_ctl` in a connection's life. (Level-triggered costs the same
/// per event, but a channel that nobody reads at the moment would wake the loop for ever.)
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

  /// For a descriptor that lives on elsewhere; a close removes by itself.
  func remove(_ target: Int32) {
    epoll_ctl(descriptor, EPOLL_CTL_DEL, target, nil)
  }

  /// Sleeps until something happens or `milliseconds` have passed (-1: for ever); answers how many events there are.
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
