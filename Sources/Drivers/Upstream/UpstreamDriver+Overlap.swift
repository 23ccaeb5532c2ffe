import ByteStreams
import Outbox
import Reactor
import UpstreamSession

/// Two connections at once, while one takes over from the other: what both bring is passed on once.
struct Overlap {
  var filter: OverlapFilter
  var timer: LoopTimer?
  /// Whether the timer is the deadline of the older connection's pong, not the delay before its ping.
  var awaitsPong = false
}

extension UpstreamDriver {
  /// How long a push of the newer connection is held for the older one, which is pinged. A peer that takes longer has stalled:
  /// then pushes pass in the order in which they come.
  private static var holdingLimit: TimeSpan { .seconds(1) }

  /// A successor is about to be upgraded: from its answer on it may bring what its predecessor brings.
  func beginOverlap(with successor: UpstreamLink) {
    guard machine.observed == .replacing, let sending, sending !== successor else { return }
    endOverlap()
    let filter = OverlapFilter(
      older: sending.generation, newer: successor.generation, holds: settings.session.liveness.isEnabled)
    overlap = Overlap(filter: filter)
  }

  /// Gives a push to the clients, unless the other of two connections has brought it already.
  @inline(__always)
  func pass(_ payload: Span<UInt8>, kind: MessageKind, from link: UpstreamLink, now: Int64) {
    if overlap != nil {
      merge(payload, kind: kind, from: link, now: now)
      return
    }
    // An upstream that gets no messages sends no responses: then repetition says nothing.
    if link.carriesMessages {
      pushHistory.note(OverlapFilter.digest(of: payload, kind: kind))
    } else {
      pushHistory.countBroadcast()
    }
    sink.received(payload, kind: kind, now: now)
  }

  private func merge(_ payload: Span<UInt8>, kind: MessageKind, from link: UpstreamLink, now: Int64) {
    let digest = OverlapFilter.digest(of: payload, kind: kind)
    var released: [OverlapFilter.Push] = []
    let passes = overlap?.filter.received(
      digest, payload, kind: kind, from: link.generation, &pushHistory, &released)
    pass(released)
    if passes != false { sink.received(payload, kind: kind, now: now) }
    overlapChanged()
  }

  private func pass(_ released: [OverlapFilter.Push]) {
    for push in released { sink.received(push.payload.bytes, kind: push.kind, now: loop.wallClock) }
  }

  /// Ends the overlap when nothing can come twice any more; sees to it that what is held does not stay so.
  private func overlapChanged() {
    if overlap?.filter.isOver == true {
      endOverlap()
    } else if overlap?.filter.isHolding == true, overlap?.timer == nil {
      armOverlapTimer(after: settings.outbox.barrierDelay)
    }
  }

  private func armOverlapTimer(after span: TimeSpan) {
    overlap?.timer = loop.schedule(at: loop.now + span, self, token: TimerToken.overlap.rawValue)
  }

  /// Usually the older connection brings soon what the newer brought first. Else it is asked how far it is.
  func overlapTimerFired() {
    overlap?.timer = nil
    guard let older = overlap?.filter.releasing, let awaitedPong = overlap?.awaitsPong else { return }
    let isHolding = overlap?.filter.isHolding == true
    overlap?.awaitsPong = isHolding && !awaitedPong
    guard isHolding else { return }
    if awaitedPong {
      var released: [OverlapFilter.Push] = []
      overlap?.filter.stopHolding(&released)
      pass(released)
      overlapChanged()
    } else {
      armOverlapTimer(after: Self.holdingLimit)
      // nil where its closing handshake has begun: then its end is awaited.
      if let counter = machine.barrierPing(older, now: loop.now, using: &entropy) { sendBarrier(counter, older) }
    }
  }

  func overlapPonged(_ counter: UInt64, on link: UpstreamLink) {
    guard let older = overlap?.filter.releasing else { return }
    var released: [OverlapFilter.Push] = []
    overlap?.filter.ponged(link.generation, counter, &released)
    if link.generation == older, overlap?.awaitsPong == true {
      overlap?.awaitsPong = false
      if let timer = overlap?.timer { loop.cancel(timer) }
      overlap?.timer = nil
    }
    pass(released)
    overlapChanged()
  }

  /// The queue flows into the newer connection.
  func overlapSwitched() {
    overlap?.filter.switched()
    overlapChanged()
  }

  /// A connection is gone, perhaps one of the two.
  func overlapLost(_ link: UpstreamLink) {
    var released: [OverlapFilter.Push] = []
    overlap?.filter.ended(link.generation, &released)
    pass(released)
    overlapChanged()
  }

  func endOverlap() {
    guard var ended = overlap else { return }
    overlap = nil
    if let timer = ended.timer { loop.cancel(timer) }
    var released: [OverlapFilter.Push] = []
    ended.filter.stopHolding(&released)
    pass(released)
  }
}
