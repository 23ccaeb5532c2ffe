import ByteStreams
import Journal
import JournalSupport
import Submissions
import Testing
import Threading

@Suite struct SubmissionQueueTests {
  private let queue = SubmissionQueue(SubmissionQueue.Limits(pendingBytes: 1_000_000, pauseBytes: 500_000)) {}
  private let progress = JournalProgress(position: 0)

  private func take(recovers: Bool) -> [Bool] {
    let batch = SubmissionBatch()
    _ = queue.take(into: batch, isDue: false, attentiveUntil: .zero, now: .zero, recovers: recovers)
    return batch.items.map(\.endsCall)
  }

  /// A client that got an error because of a failed entry has submitted a withdrawal. When the store recovers, both are
  /// stored together.
  @Test func aRecoveryTakesTheFailedEntriesOnce() {
    let journal = QueuedJournal(queue, session: 0, progress, isShared: false)
    #expect(queue.setFailed(true))
    let first = journal.note(contentsOf: [.push(RandomSession.push(1)), .push(RandomSession.push(2))])
    #expect(journal.outcome(of: first) == .failed)
    #expect(take(recovers: false) == [], "no request awaits the entries")
    #expect(journal.outcome(of: first) == .failed)
    #expect(take(recovers: true) == [false, true])
    let second = journal.note(contentsOf: [.push(RandomSession.push(3))])
    #expect(journal.outcome(of: first) == .pending && journal.outcome(of: second) == .pending)
    #expect(journal.isFailed)
    // The recovery fails.
    #expect(!queue.setFailed(true))
    #expect(journal.outcome(of: first) == .failed && journal.outcome(of: second) == .failed)
    #expect(take(recovers: true) == [true])
    progress.setStored(through: second.number, position: 3)
    let third = journal.note(contentsOf: [.push(RandomSession.push(4))])
    #expect(queue.setFailed(false))
    #expect(journal.outcome(of: second) == .stored && journal.outcome(of: third) == .pending)
    #expect(queue.setFailed(true))
    #expect(journal.outcome(of: second) == .stored && journal.outcome(of: third) == .failed)
  }
}
