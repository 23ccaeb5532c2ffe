import ByteStreams
import Glibc
import Host
import Testing

@testable import Dialing
@testable import Reactor

@Suite struct ConnectRaceTests {
  @Test func triesFamiliesInTurn() {
    let six: [SocketAddress] = (1...3).map { .ipv6(high: 0, low: $0, port: 1, scope: 0) }
    let four: [SocketAddress] = (1...2).map { .ipv4($0, port: 1) }
    #expect(ConnectRace.interleaved(six + four) == [six[0], four[0], six[1], four[1], six[2]])
    #expect(ConnectRace.interleaved(four + six) == [four[0], six[0], four[1], six[1], six[2]])
    #expect(ConnectRace.interleaved([]) == [])
  }

  /// Attack: a name server that makes us connect to thousands of other hosts.
  @Test func triesALimitedNumberOfAddresses() {
    let four = (0..<4000).map { SocketAddress.ipv4(UInt32($0), port: 80) }
    #expect(ConnectRace.interleaved(four) == Array(four.prefix(32)))
  }

  /// A session may try to connect for months, so a finished race must leave no memory behind.
  @Test func aFinishedRaceLeavesNoState() async throws {
    let loop = try EventLoop(index: 0)
    let remains = await withCheckedContinuation { done in
      loop.submit { Race(loop: $0, done: done) }
    }
    #expect(!remains)
    loop.stop()
    loop.join()
  }

  /// Connects to an address that refuses connections. Reports whether the race is still in memory afterwards.
  private final class Race: LoopTask {
    private let loop: LoopContext
    private let done: CheckedContinuation<Bool, Never>

    init(loop: LoopContext, done: CheckedContinuation<Bool, Never>) {
      self.loop = loop
      self.done = done
    }

    func run() async {
      var remains = true
      do { remains = try await connect() } catch { Issue.record(error) }
      done.resume(returning: remains)
    }

    private func connect() async throws -> Bool {
      let listener = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: false)
      defer { close(listener) }
      let addresses = [SocketAddress.ipv4(0x7F00_0001, port: 1), try Sockets.localAddress(of: listener)]
      weak var race: ConnectRace?
      do {
        let new = ConnectRace(addresses, userTimeout: .seconds(30), loop: loop)
        race = new
        guard case .connected(let channel, _) = await new.run() else {
          Issue.record("the race has no winner")
          return true
        }
        channel.close()
      }
      // The tasks of the attempts end in later turns of the loop.
      for _ in 0..<1000 where race != nil {
        _ = await LoopEvent(loop: loop).wait(until: loop.now + .milliseconds(10))
      }
      return race != nil
    }
  }
}
