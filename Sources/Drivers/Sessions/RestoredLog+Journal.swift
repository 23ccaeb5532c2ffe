import ByteStreams
import Inbox
import Journal
import JournalCoding
import Reactor

extension RestoredLog {
  /// The pushes of a stored session, with their times on the clock of this process. A push that is not readable is a gap, with all before it.
  init(_ session: RestoredSession) {
    let clock = JournalClock.present
    self.init(epoch: Epoch(session.epoch))
    terms = session.terms.map { Term($0.term, firstMessage: $0.firstPush) }
    firstRetained = session.firstRetained
    firstArrival = session.firstArrival.map { clock.time(of: $0) }
    newestTrimmedArrival = session.newestTrimmedArrival.map { clock.time(of: $0) }
    var gaps = session.gaps[...]
    if let gap = gaps.first, gap.after + 1 < firstRetained {
      newestTrimmedGap = gap.after << 1 | 1
      newestTrimmedMarks = GapMarks(gap.reasons)
      gaps.removeFirst()
    }
    for index in session.pushes.front..<session.pushes.end {
      let push = session.pushes[index]
      var marks: GapMarks = []
      while let gap = gaps.first, gap.after < push.number {
        marks.formUnion(GapMarks(gap.reasons))
        gaps.removeFirst()
      }
      let message = RetainedMessage(
        push.number, arrival: clock.time(of: push.time), layout: push.layout, rendered: push.rendered)
      if let message {
        messages.append((message, marks))
      } else {
        messages = []
        firstRetained = push.number + 1
        (newestTrimmedGap, newestTrimmedMarks) = (push.number << 1, .store)
      }
    }
    endGap = gaps.reduce(into: []) { $0.formUnion(GapMarks($1.reasons)) }
  }
}

extension RestoredLog {
  /// What is known of dropped pushes.
  init(epoch: Epoch, _ retention: JournalRetention, _ clock: JournalClock) {
    self.init(epoch: epoch)
    firstRetained = retention.first
    firstArrival = retention.firstArrival.map { clock.time(of: $0) }
    newestTrimmedArrival = retention.newestTrimmedArrival.map { clock.time(of: $0) }
    if let gap = retention.newestTrimmedGap {
      newestTrimmedGap = gap.after << 1 | 1
      newestTrimmedMarks = GapMarks(gap.reasons)
    }
  }
}

extension GapMarks {
  init(_ gaps: JournalGaps) {
    self = []
    if gaps.contains(.upstream) { insert(.upstream) }
    if gaps.contains(.store) { insert(.store) }
  }
}
