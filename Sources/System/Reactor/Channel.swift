import ByteStreams
import CLinux
import Glibc
import Host

/// How a wait on a channel ended.
package enum WaitOutcome: Equatable, Sendable {
  /// A read or write may succeed. Also reported after a hang-up, which the result of the next read or write shows.
  case ready
  /// The deadline passed first.
  case deadline
  /// `wake()` was called first.
  case woken
  /// The channel was closed by its owner.
  case closed
}

/// Waits for the input of a channel without a task, and processes it. This is faster, since the suspension and
/// resumption of a task takes more than two thousand instructions, and a suspended task takes 1 KiB of memory.
package protocol InputTarget: AnyObject {
  /// Called when a read may succeed, before the tasks of the turn run. Returns whether the wait continues. If it does
  /// not, the wait ends with `.ready`.
  func processInput() -> Bool

  /// Called when the wait has ended. The target may begin another wait.
  func inputWaitEnded(_ outcome: WaitOutcome)

  /// The deadline of the wait. Read when the wait begins, after each `processInput()`, and when the previous deadline
  /// has passed.
  var inputDeadline: MonotonicTime { get }
}

/// One non-blocking descriptor on one loop: a connection, or a listening socket.
///
/// At most one task or input target may wait to read, and one task to write. The channel remembers whether it is ready
/// (see `Epoll`), so a wait for a ready channel needs no system call. A channel is used only on its loop's thread. Its
/// owner must close it, since the descriptor is not closed otherwise.
@safe
package final class Channel {
  /// Maximum bytes of one connection's output that are passed to the kernel in one turn, so that a large message does
  /// not delay the other connections of the loop. With TLS, this takes about 1 ms.
  package static var bytesPerFlush: Int { 1 << 20 }

  package let descriptor: Int32
  package let loop: LoopContext
  private var registration: UInt64 = 0
  /// Whether a read may return data. False after a read has emptied the socket, until the kernel reports new data. True
  /// for a new socket.
  package private(set) var isReadable = true
  private var isWritable = true
  /// Whether the peer has finished sending, or the connection is broken. Received bytes may still be unread.
  package private(set) var isHungUp = false
  /// Whether both directions have ended: the peer has reset the connection, or a Unix-domain socket is closed.
  package private(set) var isBroken = false
  package private(set) var isClosed = false
  /// Whether the end of the stream has been read, so that no byte is unread and no byte will arrive.
  package private(set) var hasReadEnd = false
  private var reader = Waiter()
  private var writer = Waiter()
  /// The target that waits to read, in place of a task.
  private var inputTarget: (any InputTarget)?
  /// The deadline of the reader's timer, if there is an input target. The deadline of the target may have become later
  /// since the timer was set.
  private var inputTimerDeadline = MonotonicTime.distantFuture

  @safe
  private struct Waiter {
    var continuation: UnsafeContinuation<WaitOutcome, Never>?
    var timer: LoopTimer?
  }

  private enum TimerToken: Int { case reader, writer }

  /// Takes ownership of `descriptor`, which must be non-blocking. Closes it if registration fails.
  package init(descriptor: Int32, loop: LoopContext) throws(SystemError) {
    self.descriptor = descriptor
    self.loop = loop
    do {
      registration = try loop.register(self)
    } catch {
      SystemCall.close(descriptor)
      throw error
    }
  }

  // MARK: Waiting

  /// Waits until a read may succeed, `wake()` is called, or `deadline` has passed.
  package func readable(until deadline: MonotonicTime = .distantFuture) async -> WaitOutcome {
    if isClosed { return .closed }
    if isReadable { return .ready }
    return await readEvent(until: deadline)
  }

  /// Like `readable`, but data that was already readable does not end the wait: only a new event does. A held poll uses
  /// this when the next pipelined request is already on the socket, and the poll waits for a push or for the peer to
  /// disconnect.
  package func readEvent(until deadline: MonotonicTime) async -> WaitOutcome {
    if isClosed { return .closed }
    if deadline < .distantFuture { reader.timer = loop.schedule(at: deadline, self, token: TimerToken.reader.rawValue) }
    let outcome = await unsafe withUnsafeContinuation { continuation in
      precondition(unsafe reader.continuation == nil, "two tasks read one channel")
      unsafe reader.continuation = continuation
    }
    // After the event, the channel may have been closed before this task continued.
    return isClosed ? .closed : outcome
  }

  /// Begins a wait that passes each event to `target`, which decides whether the wait continues. As in
  /// `readEvent(until:)`, data that was already readable does not end the wait. The channel must be open.
  package func wait(for target: any InputTarget) {
    precondition(!isClosed, "a closed channel was read")
    precondition(unsafe inputTarget == nil && reader.continuation == nil, "a channel has two readers")
    inputTarget = target
    setInputTimer(target.inputDeadline)
  }

  private func setInputTimer(_ deadline: MonotonicTime) {
    inputTimerDeadline = deadline
    reader.timer =
      deadline < .distantFuture ? loop.schedule(at: deadline, self, token: TimerToken.reader.rawValue) : nil
  }

  /// Calls the input target. The loop calls this after an event of the descriptor. Other objects call it after other
  /// events for which the target waits. Returns false if no wait with an input target is in progress.
  @discardableResult
  package func processInput() -> Bool {
    guard let target = inputTarget else { return false }
    guard target.processInput() else {
      endReading(with: .ready)
      return true
    }
    guard inputTarget != nil else { return true }
    // The timer is not set again if the deadline is later now. When it fires too early, `timerFired` sets it again.
    // That is cheaper than a new timer per request.
    let deadline = target.inputDeadline
    guard deadline < inputTimerDeadline else { return true }
    if let timer = reader.timer { loop.cancel(timer) }
    setInputTimer(deadline)
    return true
  }

  /// Waits until a write may succeed or `deadline` has passed.
  package func writable(until deadline: MonotonicTime = .distantFuture) async -> WaitOutcome {
    if isClosed { return .closed }
    if isWritable { return .ready }
    if deadline < .distantFuture { writer.timer = loop.schedule(at: deadline, self, token: TimerToken.writer.rawValue) }
    let outcome = await unsafe withUnsafeContinuation { continuation in
      precondition(unsafe writer.continuation == nil, "two tasks write one channel")
      unsafe writer.continuation = continuation
    }
    return isClosed ? .closed : outcome
  }

  /// Whether a task or an input target is waiting to read, and so can be woken.
  package var hasWaitingReader: Bool { unsafe reader.continuation != nil || inputTarget != nil }

  /// Ends the reader's wait with `.woken`. Returns false if nobody waits to read.
  @discardableResult
  package func wake() -> Bool { endReading(with: .woken) }

  // MARK: Reading and writing

  /// Reads at most `limit` bytes, with one system call. The bytes are available in `received` until the next read of
  /// any channel on this loop.
  package func receive(atMost limit: Int = LoopContext.receiveBufferSize) -> IOResult {
    let room = unsafe UnsafeMutableRawBufferPointer(
      rebasing: loop.receiveBuffer[..<min(limit, loop.receiveBuffer.count)])
    let result = unsafe receive(into: room)
    if case .bytes(let count) = result { loop.receivedCount = count } else { loop.receivedCount = 0 }
    return result
  }

  /// The bytes of the last `receive()`.
  package var received: Span<UInt8> {
    @_lifetime(borrow self)
    get {
      let filled = unsafe UnsafeRawBufferPointer(rebasing: loop.receiveBuffer[..<loop.receivedCount])
      return unsafe _overrideLifetime(Span(_unsafeBytes: filled), borrowing: self)
    }
  }

  /// Reads once, appending at most `limit` bytes to `queue`.
  package func receive(into queue: inout ByteQueue, atMost limit: Int) -> IOResult {
    var result = IOResult.wouldBlock
    _ = unsafe queue.withWritableBytes(minimum: limit) { room in
      result = unsafe receive(into: UnsafeMutableRawBufferPointer(rebasing: room[..<limit]))
      if case .bytes(let count) = result { return count }
      return 0
    }
    return result
  }

  /// Reads once into `room`.
  @unsafe
  package func receive(into room: UnsafeMutableRawBufferPointer) -> IOResult {
    precondition(!isClosed, "a closed channel was read")
    // A socket that was read until it was empty is not read again before the kernel reports new data.
    guard isReadable else { return .wouldBlock }
    let result = unsafe SystemCall.receive(descriptor, room)
    switch result {
    case .wouldBlock:
      isReadable = false
    case .bytes(let count):
      // A read that does not fill `room` has emptied the socket, and further bytes will raise a new event. The end of
      // the stream raises no new event if it has arrived together with these bytes, so a socket that is hung up stays
      // readable.
      if count < room.count, !isHungUp { isReadable = false }
    case .endOfStream:
      isHungUp = true
      hasReadEnd = true
    case .failed:
      isHungUp = true
    }
    return result
  }

  /// Writes as much of `bytes` as the kernel accepts.
  package func send(_ bytes: Span<UInt8>) -> IOResult {
    precondition(!isClosed, "a closed channel was written")
    let result = unsafe bytes.withUnsafeBytes { unsafe SystemCall.send(descriptor, $0) }
    note(result, of: bytes.count)
    return result
  }

  func send(gathering vectors: UnsafeMutableBufferPointer<iovec>, total: Int) -> IOResult {
    precondition(!isClosed, "a closed channel was written")
    let result = unsafe SystemCall.send(descriptor, gathering: vectors)
    note(result, of: total)
    return result
  }

  private func note(_ result: IOResult, of count: Int) {
    switch result {
    case .wouldBlock: isWritable = false
    case .bytes(let written): if written < count { isWritable = false }
    case .endOfStream, .failed: isHungUp = true
    }
  }

  /// Bytes in the kernel's send buffer that the peer has not acknowledged. The kernel reports a socket as writable only
  /// when a third of that buffer is free, which may be more than a megabyte. Before that, only this number shows
  /// whether the peer reads.
  package var unacknowledgedBytes: Int {
    precondition(!isClosed, "a closed channel was examined")
    return max(0, Int(clinux_unacknowledged_bytes(descriptor)))
  }

  /// The time at which the peer's last acknowledgement arrived, including responses to probes. If this time is unknown,
  /// as on a Unix-domain socket, returns the current time.
  package var lastAcknowledgement: MonotonicTime {
    precondition(!isClosed, "a closed channel was examined")
    return loop.now - .milliseconds(Int64(max(0, clinux_milliseconds_since_acknowledgement(descriptor))))
  }

  /// Bytes that the kernel has accepted but TCP has not sent yet, because of the peer's receive window or the network.
  package var unsentBytes: Int {
    precondition(!isClosed, "a closed channel was examined")
    return max(0, Int(clinux_unsent_bytes(descriptor)))
  }

  /// Makes the kernel end the connection if the peer acknowledges no bytes for this time (RFC 5482).
  package func setUserTimeout(_ timeout: TimeSpan) {
    precondition(!isClosed, "a closed channel was changed")
    Sockets.setUserTimeout(timeout, of: descriptor)
  }

  // MARK: Ending

  /// Sends FIN. Reading remains possible.
  package func shutdownWriting() {
    if !isClosed { _ = shutdown(descriptor, Int32(SHUT_WR)) }
  }

  /// Closes the descriptor and ends both waits with `.closed`. Does nothing if the channel is already closed.
  package func close() {
    guard !isClosed else { return }
    isClosed = true
    loop.unregister(registration)
    SystemCall.close(descriptor)
    endReading(with: .closed)
    end(&writer, with: .closed)
  }

  /// Closes the descriptor of a socket that other processes may also have open. With `close()` alone, the events of the
  /// socket would wake the loop until the other processes have closed it, too.
  package func closeInThisProcess() {
    if !isClosed { loop.endReports(of: descriptor) }
    close()
  }

  /// Closes with RST instead of FIN: unsent bytes are discarded, and the peer is notified at once.
  package func reset() {
    guard !isClosed else { return }
    var lingering = linger(l_onoff: 1, l_linger: 0)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &lingering, socklen_t(MemoryLayout<linger>.size))
    close()
  }

  /// Returns and clears the pending error of the socket, for example of a connect (SO_ERROR); 0 if there is none.
  package func takeSocketError() -> Int32 { SystemCall.option(descriptor, level: SOL_SOCKET, name: SO_ERROR) }

  // MARK: Called by the loop and by `Sockets`

  /// Called when a system call outside this class, such as accept, has returned EAGAIN.
  func markDrained() { isReadable = false }

  /// A connect is in progress: the socket is not ready before the kernel reports it.
  func markConnecting() {
    isReadable = false
    isWritable = false
  }

  func latch(_ event: Epoll.Event) {
    if event.isHangup { isHungUp = true }
    if event.isBroken { isBroken = true }
    if event.isReadable {
      isReadable = true
      if inputTarget == nil { endReading(with: .ready) } else { loop.inputArrived(on: self) }
    }
    if event.isWritable {
      isWritable = true
      end(&writer, with: .ready)
    }
  }

  @discardableResult
  private func endReading(with outcome: WaitOutcome) -> Bool {
    guard let target = inputTarget else { return end(&reader, with: outcome) }
    inputTarget = nil
    if let timer = reader.timer {
      loop.cancel(timer)
      reader.timer = nil
    }
    target.inputWaitEnded(outcome)
    return true
  }

  @discardableResult
  private func end(_ waiter: inout Waiter, with outcome: WaitOutcome) -> Bool {
    guard let continuation = unsafe waiter.continuation else { return false }
    unsafe waiter.continuation = nil
    if let timer = waiter.timer {
      loop.cancel(timer)
      waiter.timer = nil
    }
    unsafe continuation.resume(returning: outcome)
    return true
  }
}

extension Channel: TimerTarget {
  package func timerFired(_ token: Int) {
    switch TimerToken(rawValue: token) {
    case .reader:
      if let deadline = inputTarget?.inputDeadline, deadline > loop.now {
        setInputTimer(deadline)
      } else {
        endReading(with: .deadline)
      }
    case .writer: end(&writer, with: .deadline)
    case nil: preconditionFailure("no timer \(token)")
    }
  }
}
