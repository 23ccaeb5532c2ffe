import ByteStreams
import Continuity
import Events
import Journal
import Outbox
import Reactor
import Synchronization
import UpstreamProtocol
import UpstreamSession

/// Passes the pushes of a session to its sink, and passes replies to the calls that wait for them. While one connection
/// replaces another, a push that both connections deliver is passed on once (`OverlapFilter`).
final class PushMerger: TimerTarget {
  private let handle: SessionHandle
  private let sink: any UpstreamSink
  private let loop: LoopContext
  weak var owner: SessionDriver?
  /// The merging of two connections' pushes; nil while only one connection delivers pushes.
  private var overlap: Overlap?
  /// Statistics of all pushes of the session so far, over all its connections.
  private var history = PushHistory()
  private var timer: LoopTimer?
  /// Whether the timer is the deadline of the older connection's pong. If false, it is the delay before the ping to
  /// that connection.
  private var isAwaitingPong = false
  /// How long a push of the newer connection is delayed before a ping is sent to the older connection.
  private var delay: TimeSpan { settings.value.outbox.barrierDelay }

  /// Allocated only during an overlap, so that the other sessions need not keep room for it.
  private final class Overlap {
    var filter: OverlapFilter
    init(_ filter: OverlapFilter) { self.filter = filter }
  }

  /// How long a push of the newer connection is delayed after the ping to the older connection. If the pong takes
  /// longer, pushes are passed on in the order of arrival.
  private static var delayLimit: TimeSpan { .seconds(1) }

  /// The latest settings, which define where a push contains its topic.
  var settings: PreparedSettings

  init(_ handle: SessionHandle, loop: LoopContext) {
    self.handle = handle
    sink = handle.sink
    settings = handle.settings
    self.loop = loop
  }

  /// Passes on a push. `mayRespond`: whether clients' messages were sent on the connection. If not, the push cannot be
  /// a response to a client. So it is only counted, and `PushHistory` does not record it as a possible repetition.
  @inline(__always)
  func pass(_ payload: Span<UInt8>, _ kind: MessageKind, from generation: Generation, mayRespond: Bool, time: Int64) {
    if overlap != nil {
      merge(payload, kind, from: generation, time: time)
      return
    }
    if mayRespond {
      history.record(OverlapFilter.digest(of: payload, kind: kind))
    } else {
      history.countBroadcast()
    }
    deliver(payload, kind, time: time)
  }

  /// Like the other function, for a large push that another thread has processed.
  func pass(_ push: PreparedPush, from generation: Generation, mayRespond: Bool, time: Int64) {
    if overlap != nil {
      merge(push.digest, push.payload.bytes, push.kind, nil, from: generation, time: time, push)
      return
    }
    if mayRespond { history.record(push.digest) } else { history.countBroadcast() }
    deliver(push, time: time)
  }

  /// Passes on an event, an `EventRecord`.
  ///
  /// - Parameters:
  ///   - continuation: the data from which another process would continue after this event; nil if the session is not
  ///     stored.
  ///   - prepared: the event, if it was rendered on another thread.
  func pass(
    event: ByteString, _ continuation: Continuation?, from generation: Generation, mayRespond: Bool, time: Int64,
    _ prepared: PreparedPush? = nil
  ) {
    // Only the identity of the event is hashed, since each connection has its own token for the same event.
    let digest = prepared?.digest ?? OverlapFilter.digest(of: EventRecord(event.bytes).identity, kind: .text)
    guard let overlap else {
      if mayRespond { history.record(digest) } else { history.countBroadcast() }
      return deliver(event: event.bytes, continuation, time: time, prepared)
    }
    // A continuation of the newer connection is not stored, since a push of the newer connection may be passed on after
    // later pushes.
    let isOlder = overlap.filter.releasing == generation
    merge(digest, event.bytes, .text, isOlder ? continuation : nil, from: generation, time: time, prepared)
  }

  /// A large push that is delayed.
  private final class DelayedPush: Sendable {
    let push: PreparedPush

    init(_ push: PreparedPush) { self.push = push }
  }

  private func deliver(event: Span<UInt8>, _ continuation: Continuation?, time: Int64, _ prepared: PreparedPush?) {
    if let pass = prepared?.pass { return pass(continuation) }
    sink.received(EventRecord(event), continuation, now: time)
  }

  private func deliver(_ push: PreparedPush, time: Int64) {
    if handle.mayHaveReplies.load(ordering: .relaxed), handle.receiveReply(push, now: loop.now) { return }
    if let pass = push.pass { return pass(nil) }
    sink.received(push.payload.bytes, kind: push.kind, topic: push.topic.span, now: time)
  }

  @inline(__always)
  private func deliver(_ payload: Span<UInt8>, _ kind: MessageKind, time: Int64) {
    if handle.mayHaveReplies.load(ordering: .relaxed), kind.isText, isReply(payload) { return }
    if kind.isText, !settings.value.conventions.topics.isEmpty {
      let topic = settings.value.conventions.topics.topic(of: payload)
      sink.received(payload, kind: kind, topic: topic.span, now: time)
    } else {
      sink.received(payload, kind: kind, topic: Span(), now: time)
    }
  }

  @inline(never)
  private func isReply(_ payload: Span<UInt8>) -> Bool {
    guard let correlation = settings.value.conventions.correlation else { return false }
    return handle.receiveReply(payload, correlation, now: loop.now)
  }

  private func merge(_ payload: Span<UInt8>, _ kind: MessageKind, from generation: Generation, time: Int64) {
    merge(OverlapFilter.digest(of: payload, kind: kind), payload, kind, nil, from: generation, time: time)
  }

  private func merge(
    _ digest: UInt64, _ payload: Span<UInt8>, _ kind: MessageKind, _ continuation: Continuation?,
    from generation: Generation, time: Int64, _ prepared: PreparedPush? = nil
  ) {
    var released: [OverlapFilter.Push] = []
    let large = prepared.map { OverlapFilter.Push($0.payload, kind: kind, DelayedPush($0)) }
    let passes = overlap?.filter.received(
      digest, payload, kind: kind, from: generation, &history, &released, large: large)
    pass(released)
    if passes != false { deliverMerged(payload, kind, continuation, time: time, prepared) }
    filterChanged()
  }

  /// Either all pushes of a session are events, or none is.
  private func deliverMerged(
    _ payload: Span<UInt8>, _ kind: MessageKind, _ continuation: Continuation? = nil, time: Int64,
    _ prepared: PreparedPush? = nil
  ) {
    if handle.hasEvents {
      deliver(event: payload, continuation, time: time, prepared)
    } else if let prepared {
      deliver(prepared, time: time)
    } else {
      deliver(payload, kind, time: time)
    }
  }

  private func pass(_ released: [OverlapFilter.Push]) {
    guard !released.isEmpty else { return }
    for push in released {
      let prepared = (push.preparation as? DelayedPush)?.push
      deliverMerged(push.payload.bytes, push.kind, time: loop.wallClock, prepared)
    }
    owner?.pushesReleased()
  }

  /// Whether two connections deliver pushes.
  var isOverlapping: Bool { overlap != nil }
  /// Whether pushes have arrived that are not passed on yet.
  var isDelaying: Bool { overlap?.filter.isDelaying == true }

  // MARK: Events of connections

  /// Messages were sent to the upstream, and each of them may cause a response. `count` is negative if messages were
  /// taken back.
  func sent(_ count: Int) { history.sent(count) }

  /// Clients' messages are sent on the connection of this generation.
  func messagesSent(on generation: Generation) { overlap?.filter.messageSent(generation) }

  func pingSent(_ counter: UInt64, on generation: Generation) { overlap?.filter.pingSent(generation, counter) }

  func pongReceived(_ counter: UInt64, on generation: Generation) {
    guard let older = overlap?.filter.releasing else { return }
    var released: [OverlapFilter.Push] = []
    overlap?.filter.pongReceived(generation, counter, &released)
    if generation == older, isAwaitingPong {
      isAwaitingPong = false
      if let timer { loop.cancel(timer) }
      timer = nil
    }
    pass(released)
    filterChanged()
  }

  /// The connection of this generation delivers no more pushes.
  func ended(_ generation: Generation) {
    var released: [OverlapFilter.Push] = []
    overlap?.filter.connectionEnded(generation, &released)
    pass(released)
    filterChanged()
  }

  // MARK: The overlap

  /// `delays`: whether pings can be sent. Only then are pushes delayed, since a pong releases the delayed pushes.
  func begin(older: Generation, newer: Generation, delays: Bool) {
    end()
    overlap = Overlap(OverlapFilter(older: older, newer: newer, isDelayAllowed: delays))
  }

  /// The newer connection now sends the messages of the outbox.
  func sendingMoved() {
    overlap?.filter.newerStartedSending()
    filterChanged()
  }

  func end() {
    guard let ended = overlap else { return }
    overlap = nil
    isAwaitingPong = false
    if let timer { loop.cancel(timer) }
    timer = nil
    var released: [OverlapFilter.Push] = []
    ended.filter.stopDelaying(&released)
    pass(released)
    owner?.pushesReleased()
  }

  /// Ends the overlap when no push can arrive twice any more. Until then, limits how long pushes are delayed.
  private func filterChanged() {
    if overlap?.filter.isOver == true {
      end()
    } else if overlap?.filter.isDelaying == true, timer == nil {
      arm(after: delay)
    }
  }

  private func arm(after span: TimeSpan) { timer = loop.schedule(at: loop.now + span, self) }

  /// Usually the older connection soon delivers the pushes that the newer connection delivered first. If it has not
  /// delivered them after the delay, it gets a ping.
  func timerFired(_ token: Int) {
    timer = nil
    guard let older = overlap?.filter.releasing else { return }
    let wasAwaitingPong = isAwaitingPong
    let isDelaying = overlap?.filter.isDelaying == true
    isAwaitingPong = isDelaying && !wasAwaitingPong
    guard isDelaying else { return }
    if wasAwaitingPong {
      var released: [OverlapFilter.Push] = []
      overlap?.filter.stopDelaying(&released)
      pass(released)
      filterChanged()
    } else {
      arm(after: Self.delayLimit)
      owner?.requestPong(from: older)
    }
  }
}
