import ByteStreams
import Inbox
import Journal
import Outbox
import Submissions
import TestSupport

/// The store of all gateways. Stored entries survive every crash. It stores submitted entries late, confirms them later
/// still, fails and recovers. It ends the term of a gateway that does not renew its tenure, and does not store the
/// later entries of that gateway.
///
/// The queue, the bytes of entries, the state and its restoration are parts of the program.
final class HostileStore {
  struct Row {
    let bytes: [UInt8]
    /// The number of the first push; nil for a row of changes.
    let firstPush: UInt64?
  }

  private(set) var rows: [Row] = []
  /// The term whose entries are stored; nil if no gateway is the holder.
  private(set) var tenure: Tenure?
  /// Whether the store is a file, which one process has open. Otherwise several gateways share the session.
  let isFile: Bool
  private let bug: PlantedBug?
  private var lastTerm: UInt64 = 0
  private var random: SeededGenerator

  init(isFile: Bool, seed: UInt64, bug: PlantedBug?) {
    self.isFile = isFile
    self.bug = bug
    random = SeededGenerator(seed: seed)
  }

  // MARK: Terms

  /// Begins a term for a gateway. Its beginning is stored when this returns, as in the program.
  func open(for gateway: GatewayQueue, _ hooks: any JournalHooks) throws(Violation) -> OpenedJournal {
    guard let state = restore() else { throw Violation("the rows of the store cannot be read") }
    let term = JournalTerm.number(after: lastTerm, random: UInt32.random(in: 0 ... .max, using: &random))
    let tenure = Tenure(gateway, state, showsOnlyStored: !isFile, hooks)
    let hasBegun =
      bug == .gapNotRecorded
      ? tenure.content.apply(
        .opened(JournalTerm(term: term, firstPush: state.log.nextPush, firstDelivery: state.outbox.nextDelivery)))
      : tenure.content.begin(term: term, mayHaveLostEntries: false)
    guard hasBegun else { throw Violation("term \(term) cannot follow \(lastTerm)") }
    lastTerm = term
    writeRows(of: tenure)
    gateway.tenures.append(tenure)
    self.tenure = tenure
    return OpenedJournal(journal: tenure.journal, restored: tenure.content.state)
  }

  /// Ends the term. A random part of the submitted entries is still stored. The gateway is not notified.
  func fence(_ tenure: Tenure) throws(Violation) {
    guard self.tenure === tenure else { return }
    tenure.gateway.handOver()
    try keep(of: tenure, Int.random(in: 0...tenure.handed.count, using: &random))
    self.tenure = nil
  }

  // MARK: Storing

  /// Stores the next calls.
  func keep(of tenure: Tenure, _ calls: Int) throws(Violation) {
    guard self.tenure === tenure || bug == .staleTermStores else { return }
    for _ in 0..<min(calls, tenure.handed.count) {
      let isSwapped = bug == .reordered && tenure.handed.count > 1 && Bool.random(using: &random)
      let call = tenure.handed.remove(at: isSwapped ? 1 : 0)
      for entry in call.entries where bug?.drops(entry) != true {
        guard tenure.content.apply(entry) else { throw Violation("an entry does not follow those before") }
      }
      tenure.kept = max(tenure.kept, call.ticket)
      tenure.gateway.release(call.cost)
    }
    tenure.keptPosition = tenure.content.state.log.lastPosition
    let first = tenure.content.state.log.firstRetained
    if first > tenure.firstRetained {
      tenure.firstRetained = first
      tenure.content.append(change: .log(.retained(tenure.content.state.log.retention)))
    }
    writeRows(of: tenure)
  }

  /// Reports stored entries to the gateway.
  func confirm(_ tenure: Tenure) {
    let through = bug == .confirmedBeforeKept ? tenure.handed.last?.ticket ?? tenure.kept : tenure.kept
    guard through > tenure.confirmed else { return }
    tenure.confirmed = through
    tenure.progress.setStored(through: through, position: tenure.keptPosition)
    tenure.queued.notify()
  }

  private func writeRows(of tenure: Tenure) {
    tenure.content.forEachPushRow { bytes, range, first, _ in
      rows.append(Row(bytes: Self.copy(bytes, range), firstPush: first))
    }
    tenure.content.forEachChangeRow { bytes, range in
      rows.append(Row(bytes: Self.copy(bytes, range), firstPush: nil))
    }
    tenure.content.clear()
  }

  private static func copy(_ bytes: borrowing ByteQueue, _ range: Range<Int>) -> [UInt8] {
    Array(bytes.copyBytes()[range])
  }

  // MARK: Restoring

  /// Restores the session; nil if the rows are damaged.
  private func restore() -> RestoredSession? {
    var restoration = SessionRestoration(epoch: 0xABC)
    var rows = rows
    if bug == .lastRowSkipped, let last = rows.lastIndex(where: { $0.firstPush == nil }), last > 0 {
      rows.remove(at: last)
    }
    for row in rows where row.firstPush == nil {
      guard restoration.examine(changes: row.bytes.span) else { return nil }
    }
    for row in rows {
      if let first = row.firstPush { guard restoration.add(pushes: row.bytes.span, from: first) else { return nil } }
    }
    for row in rows where row.firstPush == nil {
      guard restoration.apply(changes: row.bytes.span) else { return nil }
    }
    return restoration.state
  }

  /// The stored pushes and gaps.
  var log: (terms: [JournalTerm], changes: [LogChange])? { restore().map { ($0.terms, $0.log.changes) } }
}

/// The queue between a gateway and the store.
final class GatewayQueue {
  let submissions: SubmissionQueue
  var tenures: [Tenure] = []
  private let batch = SubmissionBatch()
  private var taken: UInt64 = 0

  init() {
    submissions = SubmissionQueue(SubmissionQueue.Limits(pendingBytes: 1 << 20, pauseBytes: 1 << 19)) {}
  }

  /// Takes all submitted entries, as calls.
  func handOver(recovers: Bool = false) {
    _ = submissions.take(into: batch, isDue: true, attentiveUntil: .zero, now: .zero, recovers: recovers)
    var call: [JournalEntry] = []
    for item in batch.items {
      taken += 1
      call.append(item.entry)
      guard item.endsCall else { continue }
      tenures[Int(item.session)].handed.append(Tenure.Call(entries: call, ticket: taken))
      call = []
    }
    batch.clear()
  }

  func release(_ bytes: Int) { if submissions.release(bytes: bytes) { tenures.last?.queued.notify() } }

  func setFailed(_ hasFailed: Bool) {
    if submissions.setFailed(hasFailed) { tenures.last?.queued.notify() }
  }
}

/// A term of one gateway.
final class Tenure {
  struct Call {
    let entries: [JournalEntry]
    /// The ticket of its last entry.
    let ticket: UInt64
    var cost: Int { entries.reduce(0) { $0 + $1.cost } }
  }

  let gateway: GatewayQueue
  let progress: JournalProgress
  let queued: QueuedJournal
  let journal: ObservedJournal
  var content: JournaledSession
  /// The calls that were taken from the queue and are not stored, in order.
  var handed: [Call] = []
  /// The last stored ticket. `confirmed` is the last ticket that the gateway knows to be stored.
  var kept: UInt64 = 0
  var keptPosition: UInt64
  var confirmed: UInt64 = 0
  var firstRetained: UInt64

  init(_ gateway: GatewayQueue, _ state: RestoredSession, showsOnlyStored: Bool, _ hooks: any JournalHooks) {
    self.gateway = gateway
    content = JournaledSession(state)
    keptPosition = state.log.lastPosition
    firstRetained = state.log.firstRetained
    progress = JournalProgress(position: state.log.lastPosition)
    queued = QueuedJournal(
      gateway.submissions, session: Int32(gateway.tenures.count), progress, isShared: showsOnlyStored)
    journal = ObservedJournal(queued, hooks)
  }
}

/// Connects a journal to the simulation.
protocol JournalHooks: AnyObject {
  /// Whether the process has died. Then none of its further entries reaches the store.
  var isDead: Bool { get }
  var bug: PlantedBug? { get }
  /// Called when this many further entries were submitted.
  func submitted(_ count: Int)
}

/// The journal of the program. A process can die between two of its calls.
final class ObservedJournal: SessionJournal, @unchecked Sendable {
  private let journal: QueuedJournal
  private unowned let hooks: any JournalHooks
  private var accepted: Set<UInt64> = []

  init(_ journal: QueuedJournal, _ hooks: any JournalHooks) {
    self.journal = journal
    self.hooks = hooks
  }

  func submit(_ entry: JournalEntry) -> JournalTicket { submit(contentsOf: [entry]) }

  func submit(contentsOf entries: [JournalEntry]) -> JournalTicket {
    submit(entries) { journal.submit(contentsOf: entries) }
  }

  func note(contentsOf entries: [JournalEntry]) -> JournalTicket {
    submit(entries) { journal.note(contentsOf: entries) }
  }

  private func submit(_ entries: [JournalEntry], _ body: () -> JournalTicket) -> JournalTicket {
    guard !hooks.isDead else { return JournalTicket(.max) }
    let ticket = body()
    let accepts = entries.contains { if case .outbox(.accepted) = $0 { true } else { false } }
    if hooks.bug == .acceptedBeforeStored, accepts { accepted.insert(ticket.number) }
    hooks.submitted(entries.count)
    return ticket
  }

  func outcome(of ticket: JournalTicket) -> JournalOutcome {
    accepted.contains(ticket.number) ? .stored : journal.outcome(of: ticket)
  }

  var storedPosition: UInt64 { journal.storedPosition }
  var isFailed: Bool { journal.isFailed }
  var hasEnded: Bool { hooks.bug == .leaseNotChecked ? false : journal.hasEnded }
  var showsUnstored: Bool { journal.showsUnstored }
  var isFull: Bool { journal.isFull }
  var isOverfull: Bool { journal.isOverfull }
  var mustPauseReading: Bool { journal.mustPauseReading }
  func observe(_ observer: any JournalObserver) { journal.observe(observer) }
}
