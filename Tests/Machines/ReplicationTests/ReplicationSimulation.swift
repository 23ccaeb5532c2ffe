import Foundation
import Testing

@testable import Replication

/// Gateways are killed, stopped and disconnected, and servers fail over. The program's machines must keep their
/// promises, which are checked continuously and at the end.
@Suite struct ReplicationSimulation {
  /// Runs this many seeds of each test, instead of a few.
  private static let seeds =
    ProcessInfo.processInfo.environment["DRAWBRIDGE_REPLICATION_SEEDS"].flatMap { UInt64($0) }

  /// A run with an even seed uses WAIT, so that only confirmed writes count. A run with an odd seed does not use WAIT,
  /// and loses more.
  private static func waits(_ seed: UInt64, _ bug: PlantedBug? = nil) -> Bool {
    seed.isMultiple(of: 2) && bug?.needsLoss != true
  }

  private static func run(_ seed: UInt64, _ bug: PlantedBug? = nil, waits: Bool) throws {
    let world = ReplicationWorld(seed: seed, bug: bug, waits: waits)
    while !world.isCalm { try world.turn() }
    try world.check()
  }

  @Test func keepsItsPromises() {
    for seed in 0..<(Self.seeds ?? 40) {
      do {
        try Self.run(seed, waits: Self.waits(seed))
      } catch {
        Issue.record("seed \(seed): \(error)")
      }
    }
  }

  /// Without the bug, the same seed breaks no promise, so the bug is the cause.
  @Test(arguments: PlantedBug.allCases)
  func findsEachPlantedBug(bug: PlantedBug) throws {
    let seeds = Self.seeds.map { 0..<$0 } ?? bug.seed..<bug.seed + 4
    for seed in seeds {
      do {
        try Self.run(seed, bug, waits: Self.waits(seed, bug))
      } catch let error as Violation {
        #expect(throws: Never.self) { try Self.run(seed, waits: Self.waits(seed, bug)) }
        if Self.seeds != nil { print("\(bug): seed \(seed): \(error)") }
        return
      }
    }
    Issue.record("\(bug) was not found with seeds \(seeds)")
  }
}
