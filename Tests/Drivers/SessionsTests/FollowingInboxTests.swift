import ByteStreams
import Host
import Inbox
import Journal
import Reactor
import TestSupport
import Testing

@testable import Sessions

/// An inbox that follows the log of a holder, and its readers. The terms of the log change, and its end may be lost.
@Suite struct FollowingInboxTests {
  /// The log in the store.
  private struct Origin {
    private(set) var session = RestoredSession(epoch: 0xABC)
    private var counter: UInt64 = 0
    private var random: SeededGenerator

    init(seed: UInt64) { random = SeededGenerator(seed: seed) }

    /// - Parameter mayHaveLost: whether the store may have lost terms with the next counters.
    mutating func begin(mayHaveLost: Bool = false) {
      counter += mayHaveLost ? 1_024 : 1
      let term = counter << 32 | UInt64(UInt32.random(in: 0...UInt32.max, using: &random))
      let next = session.log.nextPush
      apply(.opened(JournalTerm(term: term, firstPush: next, firstDelivery: 1)))
      apply(.log(.gap(mayHaveLost ? [.upstream, .store] : .upstream)))
    }

    mutating func push() {
      let term = session.terms.last?.term ?? 0
      let id = Cursor(epoch: Epoch(session.epoch), term: term, sequence: session.log.nextPush)
      let time = ProcessInformation.wallClockMilliseconds()
      var renderer = MessageRenderer()
      let message = renderer.render(
        [0x31].span, kind: .text, topic: Span(), id: id, time: time, arrival: ProcessInformation.monotonicTime())
      apply(.log(.push(message.stored(time: time))))
    }

    mutating func disconnect() { apply(.log(.gap(.upstream))) }

    /// Restores the store to an earlier state, from which another holder continues.
    mutating func lose(since earlier: RestoredSession) {
      session = earlier
      begin(mayHaveLost: true)
    }

    private mutating func apply(_ entry: JournalEntry) {
      let follows = session.apply(entry)
      #expect(follows)
    }

    var terms: [Term] { session.terms.map { Term($0.term, firstMessage: $0.firstPush) } }

    /// The pushes and gaps after a push.
    func entries(after number: UInt64) -> [LogChange] {
      let all = session.log.changes
      guard number > 0 else { return all }
      let index = all.firstIndex { if case .push(let push) = $0 { push.number == number } else { false } }
      return index.map { Array(all[($0 + 1)...]) } ?? []
    }
  }

  /// The reports of the store for a session that is followed.
  private struct Reports {
    private var terms: [Term] = []
    private var last: UInt64 = 0

    mutating func bring(_ origin: Origin, to inbox: ConcurrentInbox) {
      defer { terms = origin.terms }
      var isAnew = false
      if terms != origin.terms {
        let index = terms.last.flatMap { last in origin.terms.firstIndex { $0.term == last.term } }
        let end: UInt64? = index.map { $0 + 1 < origin.terms.count ? origin.terms[$0 + 1].firstMessage - 1 : .max }
        if let end, last <= end {
          inbox.continue(after: last, origin.terms)
        } else {
          (last, isAnew) = (0, true)
        }
      }
      let entries = origin.entries(after: last)
      if isAnew {
        var log = FollowedLog(epoch: origin.session.epoch, origin.terms, retention: FollowingInboxTests.everything)
        log.follow(entries)
        inbox.replaceLog(with: log)
      } else {
        inbox.follow(entries)
      }
      last = origin.session.log.nextPush - 1
    }
  }

  /// A client that reads a stream, which keeps its position, or that polls with the last cursor.
  private struct Reader {
    let isStream: Bool
    private let first: UInt64
    private var start: ReadStart
    /// The latest id of each push, by number.
    private var received: [UInt64: String] = [:]

    init(_ inbox: ConcurrentInbox, isStream: Bool) {
      self.isStream = isStream
      (first, start) = (inbox.latest.sequence + 1, ReadStart(inbox.latest))
    }

    mutating func read(_ inbox: ConcurrentInbox, limit: Int) throws -> Bool {
      if !isStream {
        start = try inbox.resolve(.cursor(start.cursor), now: ProcessInformation.monotonicTime())
      }
      let isNews = inbox.hasNewData(after: start)
      let result = inbox.read(after: start, limit: limit, maxBytes: .max)
      if result.hasContent { #expect(isNews, "a reader that waits is woken") }
      for message in result.messages { received[message.sequence] = FollowingInboxTests.id(message) }
      start = ReadStart(result.cursor)
      return result.hasContent
    }

    func check(_ origin: Origin) {
      for entry in origin.session.log.changes {
        guard case .push(let push) = entry, push.number >= first else { continue }
        let id = String(decoding: [UInt8](copying: push.rendered.bytes), as: UTF8.self).split(separator: "\"")[3]
        #expect(received[push.number].map { $0[...] } == id, "push \(push.number)")
      }
    }
  }

  private static let everything = Retention(count: 1_000_000, bytes: 1 << 30)

  private static func id(_ message: RetainedMessage) -> String {
    String(String(decoding: [UInt8](copying: message.rendered.bytes), as: UTF8.self).split(separator: "\"")[3])
  }

  private func follower(_ origin: Origin) -> ConcurrentInbox {
    ConcurrentInbox(
      following: FollowedLog(epoch: origin.session.epoch, [], retention: Self.everything), budget: RetentionBudget())
  }

  /// Reads the pushes from a start, one at a time.
  private func content(_ read: (ReadStart) -> ReadResult, from start: ReadStart) -> [String] {
    var result: [String] = []
    var start = start
    while true {
      let next = read(start)
      if let gap = next.gap { result.append("\(gap)") }
      for message in next.messages { result.append(Self.id(message)) }
      start = ReadStart(next.cursor)
      guard next.more else { return result + ["\(start.cursor)"] }
    }
  }

  @Test(arguments: 0..<40 as Range<UInt64>)
  func readersOfACopyMissNoPush(seed: UInt64) throws {
    var random = SeededGenerator(seed: seed)
    var origin = Origin(seed: seed)
    origin.begin()
    var reports = Reports()
    let inbox = follower(origin)
    var readers: [Reader] = []
    var earlier = origin.session
    for _ in 0..<200 {
      switch Int.random(in: 0..<20, using: &random) {
      case 0: origin.begin()
      case 1: origin.lose(since: earlier)
      case 2: earlier = origin.session
      case 3: origin.disconnect()
      case 4...9: origin.push()
      case 10...13:
        reports.bring(origin, to: inbox)
        let log = PushLog(restoring: origin.session, retention: Self.everything)
        let start = ReadStart(log.start)
        #expect(
          content({ inbox.read(after: $0, limit: 1, maxBytes: .max) }, from: start)
            == content({ log.read(after: $0, limit: 1, maxBytes: .max) }, from: start))
        if readers.count < 8 { readers.append(Reader(inbox, isStream: Bool.random(using: &random))) }
      default:
        guard !readers.isEmpty else { break }
        let index = Int.random(in: readers.indices, using: &random)
        _ = try readers[index].read(inbox, limit: Int.random(in: 1...4, using: &random))
      }
    }
    reports.bring(origin, to: inbox)
    for index in readers.indices {
      while try readers[index].read(inbox, limit: 3) {}
      readers[index].check(origin)
    }
  }

  @Test func aReaderThatIsAheadOfTheCopyWaits() throws {
    var origin = Origin(seed: 1)
    origin.begin()
    origin.push()
    var reports = Reports()
    let inbox = follower(origin)
    reports.bring(origin, to: inbox)
    // The cursor is from another gateway, whose copy already has the next push.
    let ahead = Cursor(epoch: inbox.epoch, term: origin.terms[0].term, sequence: 2)
    let start = try inbox.resolve(.cursor(ahead), now: ProcessInformation.monotonicTime())
    #expect(!inbox.hasNewData(after: start))
    #expect(inbox.read(after: start, limit: 9, maxBytes: .max).cursor == ahead)
    origin.push()
    origin.push()
    reports.bring(origin, to: inbox)
    #expect(inbox.hasNewData(after: start))
    #expect(inbox.read(after: start, limit: 9, maxBytes: .max).messages.map(\.sequence) == [3])
  }

  @Test func theCopyHasItsOwnLimitsAndCountsTowardsTheTotal() throws {
    var origin = Origin(seed: 1)
    origin.begin()
    for _ in 0..<10 { origin.push() }
    let budget = RetentionBudget(limit: 1 << 30)
    var log = FollowedLog(epoch: origin.session.epoch, origin.terms, retention: Retention(count: 3))
    // The holder's retention has dropped the first pushes.
    log.follow(origin.entries(after: 4))
    let inbox = ConcurrentInbox(following: log, budget: budget)
    #expect(inbox.summary.count == 3 && inbox.firstRetained == 8 && budget.bytes == inbox.summary.bytes)
    let read = inbox.read(
      after: ReadStart(Cursor(epoch: inbox.epoch, term: origin.terms[0].term, sequence: 2)), limit: 9, maxBytes: .max)
    #expect(read.messages.map(\.sequence) == [8, 9, 10] && read.gap == Gap(missed: 5, reasons: [.retention]))
    inbox.replaceLog(with: FollowedLog(epoch: origin.session.epoch, origin.terms, retention: Retention()))
    #expect(inbox.summary.count == 0 && budget.bytes == 0)
  }

  /// Otherwise a response that was prepared for one inbox could be returned for another inbox.
  @Test func inboxesOfOneEpochHaveNoRevisionInCommon() {
    let inboxes = (0..<3).map { _ in ConcurrentInbox(epoch: Epoch(7), retention: Retention()) }
    #expect(Set(inboxes.map(\.revision)).count == 3)
    for inbox in inboxes { inbox.recordUpstreamGap() }
    #expect(Set(inboxes.map(\.revision)).count == 3)
  }

  @Test func aPushThatCannotBeReadIsAGap() throws {
    var origin = Origin(seed: 1)
    origin.begin()
    for _ in 0..<3 { origin.push() }
    var reports = Reports()
    let inbox = follower(origin)
    reports.bring(origin, to: inbox)
    inbox.follow([.push(StoredPush(number: 4, time: 0, layout: .max, rendered: ByteString([])))])
    let start = ReadStart(Cursor(epoch: inbox.epoch, term: origin.terms[0].term, sequence: 3))
    let read = inbox.read(after: start, limit: 9, maxBytes: .max)
    #expect(read.gap?.reasons.contains(.store) == true && read.cursor.sequence == 4)
  }
}
