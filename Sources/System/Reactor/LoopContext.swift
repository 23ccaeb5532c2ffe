import ByteStreams
import CLinux
import Glibc
import Host

/// Receives timer events, on the loop's thread.
package protocol TimerTarget: AnyObject {
  /// `token` is the value that was passed to `schedule`.
  func timerFired(_ token: Int)
}

/// An object that writes its output once, at the end of a turn, however many tasks of the turn have queued output.
package protocol TurnEndTarget: AnyObject {
  func turnEnded()
}

/// Measures the turns of a loop, and so the latency of the work that each turn completes.
package protocol TurnObserver: AnyObject {
  /// A turn that began at `start` has ended, and its output was sent. Called before the loop sleeps.
  func turnEnded(from start: MonotonicTime, to end: MonotonicTime)
}

/// A timer that was set. A cancellation after it has fired has no effect.
package struct LoopTimer {
  fileprivate let handle: TimerWheel<any TimerTarget>.Handle
}

/// The state of an event loop, for the objects that are used on the loop. Not `Sendable`, so it stays on the loop's
/// thread.
@safe
package final class LoopContext {
  /// Maximum bytes per read. Linux delivers a burst on the loopback interface in pieces of this size. A larger buffer
  /// would bring no benefit, and would displace other data from the processor's cache.
  package static var receiveBufferSize: Int { 64 * 1024 }
  private static var eventsPerWait: Int { 512 }
  /// Timer resolution. An idle loop fires a timer within this time after its deadline, and never before the deadline.
  private static var nanosecondsPerTick: UInt64 { 1_000_000 }

  /// Position among the loops of this process, from 0.
  package let index: Int
  /// The time at which this turn began, after its sleep. It is 25 ns cheaper than a read of the clock, and the same
  /// during one turn.
  package private(set) var now: MonotonicTime
  /// The buffer of `Channel.receive()`. The channels of a loop use one buffer, since received bytes are processed at
  /// once.
  let receiveBuffer = UnsafeMutableRawBufferPointer.allocate(byteCount: LoopContext.receiveBufferSize, alignment: 64)
  var receivedCount = 0

  /// The random numbers for masking keys, nonces and jitter of all objects on this loop.
  package var entropy = EntropyPool()

  /// The object that the program has stored for this loop, so that later submissions can find it.
  package var userObject: AnyObject?

  /// The observer that is called at the end of each turn. It costs no further read of the clock.
  package var turnObserver: (any TurnObserver)?

  unowned var executor: LoopExecutor!
  private let epoll: Epoll
  private var wheel: TimerWheel<any TimerTarget>
  private var expired: [TimerWheel<any TimerTarget>.Expired] = []
  private var channels: [ChannelSlot] = [ChannelSlot()]
  private var freeSlots: [UInt32] = []
  private var endOfTurn: [any TurnEndTarget] = []
  private var flushing: [any TurnEndTarget] = []
  /// The targets that are called after the targets in `endOfTurn`.
  private var wakes: [any TurnEndTarget] = []
  private var localSignals: [Signal] = []
  /// Channels with an event whose input target has not been called yet.
  private var channelsWithInput: [Channel] = []
  private var yielded: [UnsafeContinuation<Void, Never>] = unsafe []

  private struct ChannelSlot {
    var generation: UInt32 = 0
    var channel: Channel?
  }

  init(index: Int) throws(SystemError) {
    self.index = index
    epoll = try Epoll(eventsPerWait: Self.eventsPerWait)
    now = MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds())
    wheel = TimerWheel(now: now.nanoseconds / Self.nanosecondsPerTick)
  }

  deinit { unsafe receiveBuffer.deallocate() }

  // MARK: For the objects on the loop

  /// Runs `task` as a new task on this loop.
  package func spawn(_ task: any LoopTask) {
    guard let loop = executor.loop.load() else { return }
    // This is safe, since the object was created on this loop, and its task runs on this loop's thread.
    nonisolated(unsafe) let task = task
    Task(executorPreference: executor) { unsafe await loop.perform(task) }
  }

  /// Calls `target` once, in the first turn that begins after `deadline`, after the input of that turn has been
  /// processed.
  package func schedule(at deadline: MonotonicTime, _ target: any TimerTarget, token: Int = 0) -> LoopTimer {
    let tick = (deadline.nanoseconds &+ Self.nanosecondsPerTick &- 1) / Self.nanosecondsPerTick
    return LoopTimer(handle: wheel.schedule(at: tick, target: target, token: token))
  }

  package func cancel(_ timer: LoopTimer) { wheel.cancel(timer.handle) }

  /// Replaces `timer` by a timer for `deadline`, or only cancels it if `deadline` is nil.
  package func reschedule(_ timer: inout LoopTimer?, at deadline: MonotonicTime?, _ target: any TimerTarget) {
    if let timer { cancel(timer) }
    timer = deadline.map { schedule(at: $0, target) }
  }

  /// Calls `target` once before this turn ends.
  package func atEndOfTurn(_ target: any TurnEndTarget) { endOfTurn.append(target) }

  /// Calls `target` once at the end of the current turn of the calling thread's loop, after the output of the turn was
  /// sent. Calls it at once if the thread runs no loop. This is used to wake other threads late: a thread that wakes
  /// during the turn competes with the loop for the processor, and finds only the work that the turn has submitted so
  /// far.
  package static func atVeryEndOfTurn(_ target: any TurnEndTarget) {
    guard let owner = unsafe clinux_thread_owner() else { return target.turnEnded() }
    unsafe Unmanaged<LoopContext>.fromOpaque(owner).takeUnretainedValue().wakes.append(target)
  }

  /// Creates a signal that any thread can use to wake `target`.
  package func makeSignal(for target: any SignalTarget) -> Signal { Signal(executor: executor, target: target) }

  /// Suspends the caller until the next turn, so that every other ready connection runs first.
  package func yieldTurn() async {
    unsafe await withUnsafeContinuation { continuation in
      unsafe yielded.append(continuation)
    }
  }

  /// Wall-clock time in milliseconds of UNIX time.
  package var wallClock: Int64 { SystemCall.wallClockMilliseconds() }

  // MARK: For channels

  func register(_ channel: Channel) throws(SystemError) -> UInt64 {
    let slot = freeSlots.popLast() ?? UInt32(channels.count)
    if Int(slot) == channels.count { channels.append(ChannelSlot()) }
    let data = UInt64(channels[Int(slot)].generation) << 32 | UInt64(slot)
    do {
      try epoll.add(channel.descriptor, data: data)
    } catch {
      freeSlots.append(slot)
      throw error
    }
    channels[Int(slot)].channel = channel
    return data
  }

  func unregister(_ data: UInt64) {
    let slot = Int(data & 0xFFFF_FFFF)
    channels[slot].channel = nil
    // The current batch may still contain an event of the closed descriptor. The new generation makes the loop ignore
    // this event.
    channels[slot].generation &+= 1
    freeSlots.append(UInt32(slot))
  }

  /// Ends the reports of events of `descriptor`. A close ends them, too, unless another process has the socket open.
  func endReports(of descriptor: Int32) { epoll.remove(descriptor) }

  func inputArrived(on channel: Channel) { channelsWithInput.append(channel) }

  // MARK: For signals

  func raise(_ signal: Signal) { localSignals.append(signal) }

  // MARK: The turn, called by the executor

  /// Makes the calling thread the thread of this loop.
  func attach() {
    // The loop is not retained, since the thread ends before its loop is freed.
    unsafe clinux_set_thread_owner(Unmanaged.passUnretained(self).toOpaque())
  }

  func watch(_ mailbox: Mailbox) {
    do {
      // Slot 0 belongs to the mailbox, which has no channel, since its event only ends the sleep.
      try epoll.add(mailbox.descriptor, data: 0)
    } catch {
      preconditionFailure("the mailbox could not be watched: \(error)")
    }
  }

  /// Ends the loop. Drops its timers, which will never fire: most of their targets refer to the loop, and would keep it
  /// in memory.
  func detach() {
    wheel = TimerWheel(now: tick)
    endOfTurn = []
    localSignals = []
    channelsWithInput = []
    turnObserver = nil
  }

  var hasDeferredWork: Bool { unsafe !yielded.isEmpty || !localSignals.isEmpty || !endOfTurn.isEmpty }

  func sleepAndDispatch(mayBlock: Bool) {
    var milliseconds: Int32 = 0
    if mayBlock {
      let end = SystemCall.monotonicNanoseconds()
      turnObserver?.turnEnded(from: now, to: MonotonicTime(nanoseconds: end))
      milliseconds = sleepTime(from: end)
    }
    let count = epoll.wait(milliseconds: milliseconds)
    let start = now
    now = MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds())
    if !mayBlock { turnObserver?.turnEnded(from: start, to: now) }
    dispatch(count)
    // A single wait can miss events from before `now`: a stopped process resumes with EINTR, and a batch may be full.
    // Timers must not fire before such events are reported. So the loop waits again, for one batch more than all
    // channels can fill. Events beyond that batch have arrived later than `now`.
    guard wheel.isDue(at: tick) else { return }
    for _ in 0...(channels.count / Self.eventsPerWait) {
      let count = epoll.wait(milliseconds: 0)
      dispatch(count)
      if count < Self.eventsPerWait { return }
    }
  }

  private func dispatch(_ count: Int) {
    for index in 0..<count {
      let event = epoll.event(at: index)
      let slot = Int(event.data & 0xFFFF_FFFF)
      guard channels[slot].generation == UInt32(event.data >> 32), let channel = channels[slot].channel else {
        continue
      }
      channel.latch(event)
    }
  }

  /// Calls the input targets, so that they process the received input.
  func processInput() {
    // The list does not change during this loop, since targets add no channels to it.
    for index in channelsWithInput.indices { channelsWithInput[index].processInput() }
    channelsWithInput.removeAll(keepingCapacity: true)
  }

  private func sleepTime(from instant: UInt64) -> Int32 {
    guard let wake = wheel.nextWake() else { return -1 }
    let due = wake &* Self.nanosecondsPerTick
    guard due > instant else { return 0 }
    return Int32(clamping: (due &- instant &+ 999_999) / 1_000_000)
  }

  private var tick: UInt64 { now.nanoseconds / Self.nanosecondsPerTick }

  /// Returns false if no timer was due.
  func fireTimers() -> Bool {
    wheel.advance(to: tick, into: &expired)
    guard !expired.isEmpty else { return false }
    var due: [TimerWheel<any TimerTarget>.Expired] = []
    swap(&due, &expired)
    for timer in due { timer.target.timerFired(timer.token) }
    due.removeAll(keepingCapacity: true)
    swap(&due, &expired)
    return true
  }

  func resumeYielded() {
    guard unsafe !yielded.isEmpty else { return }
    let ready = unsafe yielded
    unsafe yielded.removeAll(keepingCapacity: true)
    for index in unsafe ready.indices { unsafe ready[index].resume() }
  }

  /// Runs one round of signals. Signals that are raised during the round wait for the next turn, so that I/O happens in
  /// between. Returns false if there were no signals.
  func deliverLocalSignals() -> Bool {
    guard !localSignals.isEmpty else { return false }
    let raised = localSignals
    localSignals.removeAll(keepingCapacity: true)
    for signal in raised { signal.deliver() }
    return true
  }

  func flush() {
    if !endOfTurn.isEmpty {
      swap(&flushing, &endOfTurn)
      for target in flushing { target.turnEnded() }
      flushing.removeAll(keepingCapacity: true)
    }
    guard !wakes.isEmpty else { return }
    for target in wakes { target.turnEnded() }
    wakes.removeAll(keepingCapacity: true)
  }
}
