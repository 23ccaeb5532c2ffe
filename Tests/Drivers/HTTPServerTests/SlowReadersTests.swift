import Foundation
import Metrics
import Reactor
import Testing

@testable import HTTPServer

@Suite struct SlowReadersTests {
  /// What a loop keeps alive.
  private final class Resident {
    let readers: SlowReaders
    var channels: [Channel] = []
    init(_ readers: SlowReaders) { self.readers = readers }
  }

  private func isHungUp(_ descriptor: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: 0, revents: 0)
    return unsafe poll(&entry, 1, 0) == 1 && entry.revents & Int16(POLLHUP) != 0
  }

  @Test func theSlowestIsResetOnWhicheverLoopItIs() async throws {
    let unsent = Gauge()
    let shed = Counter()
    let responses = UnsentResponses(limit: 1000, unsent: unsent, shed: shed)
    let loops = try (0..<2).map { try EventLoop(index: $0) }
    var clients: [Int32] = []
    // The first is the slowest. The third makes it too much: 600 go, and 300 and 600 stay.
    for (loop, bytes, total) in [(0, 600, 600), (1, 300, 900), (1, 600, 900)] {
      let (client, server) = socketPair()
      clients.append(client)
      loops[loop].submit { context in
        let resident = context.userObject as? Resident ?? Resident(SlowReaders(responses, loop: context))
        context.userObject = resident
        guard let channel = try? Channel(descriptor: server, loop: context) else { return nil }
        resident.channels.append(channel)
        _ = resident.readers.add(channel, bytes: bytes)
        return nil
      }
      #expect(eventually { unsent.current == total })
    }
    #expect(eventually { isHungUp(clients[0]) }, "the slowest, on the other loop, is reset")
    #expect(!isHungUp(clients[1]) && !isHungUp(clients[2]))
    #expect(shed.total == 1)
    for loop in loops {
      loop.stop()
      loop.join()
    }
    for client in clients { close(client) }
  }
}
