import Inbox
import Logging
import Metrics
import Testing
import WebSocketCodec

@testable import Sessions
@testable import Upstream

@Suite struct SessionDirectoryTests {
  private func directory(_ names: String...) throws -> SessionDirectory { try directory(names) }

  private func directory(_ names: [String]) throws -> SessionDirectory {
    let settings = try PreparedSettings(UpstreamSettings(urls: [try WebSocketURL("ws://127.0.0.1:1/")]))
    return SessionDirectory(
      names.map { name in
        Session(
          name, settings, retention: Retention(), logger: Logger(level: .error, format: .json),
          metrics: MetricsRegistry(),
          attemptLimiter: ConcurrentAttemptLimiter())
      }, logger: Logger(level: .error, format: .json), registry: MetricsRegistry(),
      attemptLimiter: ConcurrentAttemptLimiter())
  }

  private func find(_ name: String, in directory: SessionDirectory) -> String? {
    directory.find(Array(name.utf8).span)?.name
  }

  @Test func findsSessionsByTheirNames() throws {
    let directory = try directory("default", "market", "orders")
    for name in ["default", "market", "orders"] { #expect(find(name, in: directory) == name) }
    for name in ["", "Market", "market ", "marke", "markets"] { #expect(find(name, in: directory) == nil) }
    #expect(directory.default?.name == "default")
  }

  @Test func findsEachOfAThousandSessions() throws {
    let directory = try directory((0..<1_000).map { "s\($0)" })
    for index in 0..<1_000 { #expect(directory.find("s\(index)") === directory.all[index]) }
    for name in ["s1000", "s", "s01", "S1"] { #expect(find(name, in: directory) == nil) }
  }

  @Test func findsNothingIfThereAreNoSessions() throws { #expect(try directory().find("default") == nil) }

  /// The hash of this name is the largest integer, and `market` is in the last slot, so the lookup continues in the
  /// first slot.
  @Test func continuesInTheFirstSlotAfterTheLastSlot() throws {
    #expect(find("E6E1CFYz6UAKvhS2p8BFbNUz", in: try directory("market")) == nil)
  }

  @Test func worksWithoutADefaultSession() throws {
    let directory = try directory("market")
    #expect(directory.default == nil)
    #expect(find("default", in: directory) == nil)
    #expect(find("market", in: directory) == "market")
  }

  @Test func deliveryIDsIdentifyTheirSession() throws {
    let directory = try directory("market", "orders")
    let prefixes = Set(directory.all.map(\.deliveryTerms.prefix))
    #expect(prefixes.count == 2)
    #expect(prefixes.allSatisfy { $0.hasPrefix("d-") && $0.hasSuffix(".") })
  }
}
