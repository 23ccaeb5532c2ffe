import ByteStreams
import Reactor
import UpstreamSession

/// Two connections at once, while one takes over from the other: what both bring is passed on once.
struct Overlap {
  var filter: OverlapFilter
  /// Set once one of the two has ended: the pong to this ping, on this connection, comes after everything that the upstream
  /// sent to both.
  var ends: (generation: Generation, counter: UInt64)?
}

extension UpstreamDriver {
  /// A successor is about to be upgraded: from its answer on it may bring what its predecessor brings.
  func beginOverlap(with successor: UpstreamLink) {
    guard machine.observed == .replacing, let sending, sending !== successor else { return }
    overlap = Overlap(filter: OverlapFilter(older: sending.generation, newer: successor.generation))
  }

  /// Gives a push to the clients, unless the other of two connections has brought it already.
  @inline(__always)
  func pass(_ payload: Span<UInt8>, isText: Bool, from link: UpstreamLink, now: Int64) {
    guard overlap == nil || isNews(payload, isText: isText, from: link) else { return }
    sink.received(payload, isText: isText, now: now)
  }

  private func isNews(_ payload: Span<UInt8>, isText: Bool, from link: UpstreamLink) -> Bool {
    let digest = OverlapFilter.digest(of: payload, isText: isText)
    guard let isNews = overlap?.filter.passes(digest, from: link.generation) else { return true }
    if overlap?.filter.isOver == true { overlap = nil }
    return isNews
  }

  /// A connection is gone. If it was one of two, the other is asked how far it is.
  func endOverlap(of link: UpstreamLink) {
    guard let left = overlap?.filter.ended(link.generation) else { return }
    if overlap?.filter.isOver == true {
      overlap = nil
    } else if let counter = machine.barrierPing(left, now: loop.now, using: &entropy) {
      overlap?.ends = (left, counter)
      sendBarrier(counter, left)
    }
  }

  func overlapPonged(_ counter: UInt64, on link: UpstreamLink) {
    if let ends = overlap?.ends, ends.generation == link.generation, counter >= ends.counter { overlap = nil }
  }
}
