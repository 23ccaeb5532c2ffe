import ByteStreams
import CLinux
import Glibc

/// How a wait on a channel ended.
package enum WaitOutcome: Equatable, Sendable {
  /// A read or write is worth trying; also after a hang-up, which the next call will tell.
  case ready
  /// The deadline came first.
  case deadline
  /// `wake()` came first.
  case woken
  /// The channel was closed by its owner.
  case closed
}

/// One non-blocking descriptor on one loop: a connection, or a listening socket.
///
/// One task at a time may wait for reading and one for writing. The channel remembers readiness (see `Epoll`), so asking
/// a ready channel costs nothing. It lives on its loop and is closed by its owner; forgetting to is a leak, not a hazard.
@safe
package final class Channel {
  package let descriptor: Int32
  package let loop: LoopContext
  private var registration: UInt64 = 0
  /// True until a call answers 'not now'; a fresh socket is worth one try.
  package private(set) var isReadable = true
  private var isWritable = true
  /// The peer has finished sending, or the connection is broken. Reading has not necessarily caught up.
  package private(set) var isHungUp = false
  /// The kernel has reported that both directions have ended: the peer has reset the connection, or a Unix-domain socket is closed.
  package private(set) var isBroken = false
  package private(set) var isClosed = false
  private var reader = unsafe Waiter(token: 0)
  private var writer = unsafe Waiter(token: 1)

  @safe
  private struct Waiter {
    let token: Int
    var continuation: UnsafeContinuation<WaitOutcome, Never>?
    var timer: LoopTimer?
  }

  /// Takes over `descriptor`, which must be non-blocking; it is closed when registering fails.
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

  /// Waits until reading is worth trying, `wake()` is called, or `deadline` has passed.
  package func readable(until deadline: MonotonicTime = .distantFuture) async -> WaitOutcome {
    if isClosed { return .closed }
    if isReadable { return .ready }
    return await readEvent(until: deadline)
  }

  /// As `readable`, but what was already there to read does not end the wait: for a held poll that has looked at the
  /// socket and found the next pipelined request, and waits for a message or for the peer to go away.
  package func readEvent(until deadline: MonotonicTime) async -> WaitOutcome {
    if isClosed { return .closed }
    if deadline < .distantFuture { reader.timer = loop.schedule(at: deadline, self, token: reader.token) }
    return await unsafe withUnsafeContinuation { continuation in
      precondition(unsafe reader.continuation == nil, "two tasks read one channel")
      unsafe reader.continuation = continuation
    }
  }

  /// Waits until writing is worth trying or `deadline` has passed.
  package func writable(until deadline: MonotonicTime = .distantFuture) async -> WaitOutcome {
    if isClosed { return .closed }
    if isWritable { return .ready }
    if deadline < .distantFuture { writer.timer = loop.schedule(at: deadline, self, token: writer.token) }
    return await unsafe withUnsafeContinuation { continuation in
      precondition(unsafe writer.continuation == nil, "two tasks write one channel")
      unsafe writer.continuation = continuation
    }
  }

  /// Whether a task is waiting to read, and so can be woken.
  package var hasWaitingReader: Bool { unsafe reader.continuation != nil }

  /// Ends the reader's wait with `.woken`; false where nobody waits.
  @discardableResult
  package func wake() -> Bool { end(&reader, with: .woken) }

  // MARK: Reading and writing

  /// Reads once, at most `limit` bytes; they stand in `received` until the next read of any channel on this loop.
  package func receive(atMost limit: Int = LoopContext.receiveBufferSize) -> IOResult {
    let room = unsafe UnsafeMutableRawBufferPointer(
      rebasing: loop.receiveBuffer[..<min(limit, loop.receiveBuffer.count)])
    let result = unsafe receive(into: room)
    if case .bytes(let count) = result { loop.receivedCount = count } else { loop.receivedCount = 0 }
    return result
  }

  /// What the last `receive()` brought.
  package var received: Span<UInt8> {
    @_lifetime(borrow self)
    get {
      let filled = unsafe UnsafeRawBufferPointer(rebasing: loop.receiveBuffer[..<loop.receivedCount])
      return unsafe _overrideLifetime(Span(_unsafeBytes: filled), borrowing: self)
    }
  }

  /// Reads once, onto the end of `queue`.
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
    // A socket that was read empty is not asked again before the kernel says that more has come.
    guard isReadable else { return .wouldBlock }
    let result = unsafe SystemCall.receive(descriptor, room)
    switch result {
    case .wouldBlock:
      isReadable = false
    case .bytes(let count):
      // A short read emptied the socket; the next bytes are a new edge. Not so the end of the stream, which may have
      // come with them.
      if count < room.count, !isHungUp { isReadable = false }
    case .endOfStream, .failed:
      isHungUp = true
    }
    return result
  }

  /// Writes what the kernel takes of `bytes`.
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

  /// Bytes in the kernel's send buffer, which the peer has not taken. A socket is reported writable only when a third of that
  /// buffer is free, which may be more than a megabyte: this shows in between whether the peer reads.
  package var unacknowledgedBytes: Int {
    precondition(!isClosed, "a closed channel was examined")
    return max(0, Int(clinux_unacknowledged_bytes(descriptor)))
  }

  // MARK: Ending

  /// Sends FIN; reading goes on.
  package func shutdownWriting() {
    if !isClosed { _ = shutdown(descriptor, Int32(SHUT_WR)) }
  }

  /// Closes the descriptor and ends both waits with `.closed`. Again: nothing.
  package func close() {
    guard !isClosed else { return }
    isClosed = true
    loop.unregister(registration)
    SystemCall.close(descriptor)
    end(&reader, with: .closed)
    end(&writer, with: .closed)
  }

  /// Closes with RST in place of FIN: what is unsent is thrown away, and the peer knows at once.
  package func reset() {
    guard !isClosed else { return }
    var lingering = linger(l_onoff: 1, l_linger: 0)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &lingering, socklen_t(MemoryLayout<linger>.size))
    close()
  }

  /// The error a connect or the network left on the socket (0: none); asking clears it.
  package func takeSocketError() -> Int32 { SystemCall.option(descriptor, level: SOL_SOCKET, name: SO_ERROR) }

  // MARK: Called by the loop and by `Sockets`

  /// An accept answered 'not now'.
  func noteDrained() { isReadable = false }

  /// A connect is under way: nothing can be read or written before the kernel says so.
  func noteConnecting() {
    isReadable = false
    isWritable = false
  }

  func latch(_ event: Epoll.Event) {
    if event.isHangup { isHungUp = true }
    if event.isBroken { isBroken = true }
    if event.isReadable {
      isReadable = true
      end(&reader, with: .ready)
    }
    if event.isWritable {
      isWritable = true
      end(&writer, with: .ready)
    }
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
    if token == reader.token { end(&reader, with: .deadline) } else { end(&writer, with: .deadline) }
  }
}
