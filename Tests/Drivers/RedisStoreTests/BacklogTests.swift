import Journal
import JournalSupport
import Testing

@testable import RedisStore
@testable import Submissions

@Suite struct BacklogTests {
  @Test func aBacklogThatIsNeverEmptyReleasesTakenElements() {
    let entry = JournalEntry.push(RandomSession.push(1, size: 1))
    var backlog = SessionBacklog()
    for number in 1...100_000 {
      backlog.append(SubmissionBatch.Item(entry: entry, session: 0, endsCall: true), UInt64(number))
      if number > 100 { #expect(backlog.next() != nil && backlog.lastTicket == UInt64(number - 100)) }
      if backlog.storedCount > 10_000 { break }
    }
    #expect(backlog.storedCount <= 10_000 && !backlog.isEmpty)
  }
}
