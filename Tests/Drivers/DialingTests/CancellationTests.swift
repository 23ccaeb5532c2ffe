import ByteStreams
import Dialing
import LoopbackSupport
import Reactor
import Synchronization
import Testing

@Suite struct CancellationTests {
  /// An attempt may be cancelled in the turn that starts it. Nobody would end work that begins afterwards.
  @Test func workOfACancelledTaskDoesNotStart() async throws {
    let shared = WorkRecord()
    let loop = try EventLoop(index: 0)
    loop.submit { context in CancelledTask(shared, context) }
    try await until("the task has ended") { shared.hasEnded.load(ordering: .acquiring) }
    let hasRun = shared.hasRun.load(ordering: .acquiring)
    #expect(!hasRun)
    loop.stop()
    loop.join()
  }
}

private final class WorkRecord: Sendable {
  let hasRun = Atomic(false)
  let hasEnded = Atomic(false)
}

private final class CancelledTask: LoopTask {
  private let record: WorkRecord
  private let loop: LoopContext

  init(_ record: WorkRecord, _ loop: LoopContext) {
    self.record = record
    self.loop = loop
  }

  func run() async {
    let cancellation = Cancellation()
    cancellation.cancel()
    let work = BlockingWork(on: "a cancelled task") { [record] in record.hasRun.store(true, ordering: .releasing) }
    let outcome = await cancellation.outcome(of: work, until: loop.now + .seconds(60), on: loop)
    if outcome != nil { record.hasRun.store(true, ordering: .releasing) }
    record.hasEnded.store(true, ordering: .releasing)
  }
}
