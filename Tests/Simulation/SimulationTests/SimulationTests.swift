import ByteStreams
import CVirtualClock
import Foundation
import Synchronization
import Testing
import Threading

/// The API, its sessions and their connections, run in one thread with a virtual clock. Each run of a seed lets a
/// gateway die at a different entry that is submitted to the store.
///
/// `make simulation` runs 1,000 seeds. `DRAWBRIDGE_SIMULATION_SEED=5 swift test --filter keepsItsPromisesWherever`
/// repeats a seed, and `…_TICKET=12` one of its crashes. With `…_TRACE=1`, each step is printed.
@Suite struct SimulationTests {
  private static func number(_ name: String) -> UInt64? {
    ProcessInfo.processInfo.environment["DRAWBRIDGE_SIMULATION_\(name)"].flatMap { UInt64($0) }
  }

  /// The outcome of a run.
  struct Outcome: Sendable {
    var tickets = 0
    var digest: UInt64 = 0
    var violation: String?
  }

  /// Runs `body` on a thread of its own, which has the virtual clock.
  private static func onThread<Result: Sendable>(_ body: @escaping @Sendable () -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      let isStarted = DetachedThread.start(named: "simulation") {
        let result = body()
        virtual_clock_end()
        continuation.resume(returning: result)
      }
      precondition(isStarted, "no thread can be started")
    }
  }

  private static func run(_ seed: UInt64, crashTicket: Int? = nil, _ bug: PlantedBug? = nil) -> Outcome {
    var outcome = Outcome()
    do throws(Violation) {
      let world = try World(seed: seed, crashTicket: crashTicket, bug: bug)
      do throws(Violation) { try world.run() } catch { outcome.violation = error.description }
      (outcome.tickets, outcome.digest) = (world.tickets, world.ledger.digest)
    } catch {
      outcome.violation = error.description
    }
    return outcome
  }

  /// A run that breaks a promise.
  private struct Finding: Sendable, CustomStringConvertible {
    let seed: UInt64
    let ticket: Int?
    let violation: String
    var description: String { "seed \(seed), \(ticket.map { "crash at entry \($0)" } ?? "no crash"): \(violation)" }
  }

  /// The first finding of a seed. The first run has no crash at an entry, and each further run has a crash at one of
  /// the entries.
  private static func finding(_ seed: UInt64, _ bug: PlantedBug? = nil) -> Finding? {
    if let ticket = number("TICKET").map({ Int($0) }) {
      return run(seed, crashTicket: ticket, bug).violation.map { Finding(seed: seed, ticket: ticket, violation: $0) }
    }
    let whole = run(seed, bug)
    if let violation = whole.violation { return Finding(seed: seed, ticket: nil, violation: violation) }
    for ticket in stride(from: 1, through: whole.tickets, by: 1) {
      if let violation = run(seed, crashTicket: ticket, bug).violation {
        return Finding(seed: seed, ticket: ticket, violation: violation)
      }
    }
    histories.add(whole.tickets + 1, ordering: .relaxed)
    return nil
  }

  private static let histories = Atomic(0)

  @Test func keepsItsPromisesWhereverAGatewayDies() async {
    let seeds = Self.number("SEED").map { $0..<$0 + 1 } ?? 0..<(Self.number("SEEDS") ?? 6)
    let threads = UInt64(ProcessInfo.processInfo.activeProcessorCount)
    await withTaskGroup(of: Void.self) { group in
      for thread in 0..<threads {
        group.addTask {
          for seed in seeds where seed % threads == thread {
            if let finding = await Self.onThread({ Self.finding(seed) }) { Issue.record("\(finding)") }
          }
        }
      }
    }
    if Self.number("SEEDS") != nil { print("\(Self.histories.load(ordering: .relaxed)) histories") }
  }

  @Test func theSameSeedGivesTheSameHistory() async {
    let seeds: Range<UInt64> = 0..<3
    let digests = await Self.onThread { seeds.map { Self.run($0).digest } }
    let again = await Self.onThread { seeds.map { Self.run($0).digest } }
    #expect(digests == again)
  }

  /// Without the bug, the same run breaks no promise, so the bug is the cause.
  @Test(arguments: PlantedBug.allCases)
  func findsEachPlantedBug(_ bug: PlantedBug) async {
    let seeds = Self.number("SEEDS").map { 0..<$0 } ?? bug.seed..<bug.seed + 4
    for seed in seeds {
      guard let finding = await Self.onThread({ Self.finding(seed, bug) }) else { continue }
      let without = await Self.onThread { Self.run(seed, crashTicket: finding.ticket).violation }
      #expect(without == nil)
      if Self.number("SEEDS") != nil { print("\(bug): \(finding)") }
      return
    }
    Issue.record("\(bug) was not found with seeds \(seeds)")
  }

  /// The store fails after the deadline of the holder. The next holder sends the messages that are stored.
  @Test func aFormerHolderDoesNotSayThatAMessageWasNotAccepted() async {
    let status = await Self.onThread { () -> Int? in
      do throws(Violation) { return try World.statusAfterTheLease() } catch { return nil }
    }
    #expect(status == 502)
  }
}
