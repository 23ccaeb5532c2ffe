import Foundation
import Host
import LoopbackSupport
import Metrics
import Reactor
import TestSupport
import Testing

@testable import HTTPServer

@Suite struct ProcessTotalTests {
  /// The objects that a loop keeps alive.
  private final class Resident {
    let parts: LoopParts<Channel>
    var channels: [Channel] = []
    init(_ parts: LoopParts<Channel>) { self.parts = parts }
  }

  private func isHungUp(_ descriptor: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: 0, revents: 0)
    return unsafe poll(&entry, 1, 0) == 1 && entry.revents & Int16(POLLHUP) != 0
  }

  /// Adds parts, each with a loop and an origin. Returns for each part whether its client was reset.
  private func reset(
    _ parts: [(loop: Int, origin: ClientOrigin, bytes: Int)], _ order: ProcessTotal.Order, used: Int, yielded: UInt64
  ) throws -> [Bool] {
    let (gauge, counter) = (Gauge(), Counter())
    let total = ProcessTotal(limit: 1000, order, used: gauge, yielded: counter)
    let loops = try (0..<2).map { try EventLoop(index: $0) }
    var clients: [Int32] = []
    for (count, part) in parts.enumerated() {
      let (client, server) = socketPair()
      clients.append(client)
      loops[part.loop].submit { context in
        let resident =
          context.userObject as? Resident ?? Resident(LoopParts(total, loop: context) { channel in channel.reset() })
        context.userObject = resident
        guard let channel = try? Channel(descriptor: server, loop: context) else { return nil }
        resident.channels.append(channel)
        if case .admitted = resident.parts.add(channel, part.bytes, by: part.origin) { return nil }
        channel.reset()
        return nil
      }
      #expect(eventually { total.count + Int(counter.total) == count + 1 })
    }
    #expect(gauge.current == used && counter.total == yielded)
    #expect(eventually { clients.count { isHungUp($0) } == yielded })
    let result = clients.map { isHungUp($0) }
    for loop in loops {
      loop.stop()
      loop.join()
    }
    for client in clients { close(client) }
    return result
  }

  @Test func theSlowestConnectionIsResetOnAnyLoop() throws {
    let parts = [(0, 600), (1, 300), (1, 600)].map { (loop: $0, origin: ClientOrigin.ipv4(1), bytes: $1) }
    #expect(try reset(parts, .oldestFirst, used: 900, yielded: 1) == [true, false, false])
  }

  @Test func theHeaviestConnectionIsResetOnAnyLoop() throws {
    // This client has waited longest, but its output is small.
    let slow = (loop: 0, origin: ClientOrigin.ipv4(1), bytes: 100)
    let heavy = (loop: 0, origin: ClientOrigin.ipv4(2), bytes: 450)
    let other = (loop: 1, origin: ClientOrigin.ipv6(prefix: 3), bytes: 300)
    for order in [ProcessTotal.Order.oldestFirst, .newestFirst] {
      #expect(try reset([slow, heavy, heavy, other], order, used: 850, yielded: 1) == [false, true, false, false])
    }
    // The client that needs more memory is the heaviest client itself.
    #expect(try reset([slow, heavy, heavy], .newestFirst, used: 1000, yielded: 0) == [false, false, false])
    #expect(
      try reset([slow, heavy, heavy, heavy], .newestFirst, used: 1000, yielded: 1) == [false, false, false, true])
  }

  // MARK: Connections

  private func origin(_ host: String, port: UInt16 = 1) throws -> ClientOrigin {
    ClientOrigin(try #require(SocketAddress(numericHost: host, port: port)))
  }

  @Test func countsAnAddressWhateverItsPort() throws {
    #expect(try origin("192.0.2.1", port: 1) == origin("192.0.2.1", port: 2))
    #expect(try origin("192.0.2.1") != origin("192.0.2.2"))
  }

  @Test(arguments: [
    ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true), ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
    ("::ffff:192.0.2.1", "192.0.2.1", true), ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false), ("::1", "::2", true),
  ])
  func countsIPv6ByItsNetwork(one: String, other: String, same: Bool) throws {
    #expect(try (origin(one) == origin(other)) == same)
  }

  @Test func admitsUpToTheLimitOfOneAddress() throws {
    let loop = try EventLoop(index: 0)
    loop.submit { context in
      let total = ProcessTotal(limit: 10, limitPerAddress: 2, .newestFirst)
      let parts = LoopParts<Channel>(total, loop: context) { _ in }
      func admits(_ origin: ClientOrigin) -> LoopPart? {
        if case .admitted(let part) = parts.add(nil, 1, by: origin) { part } else { nil }
      }
      let network = ClientOrigin.ipv6(prefix: 7)
      let first = admits(network)
      #expect(first != nil && admits(network) != nil && admits(network) == nil)
      guard case .tooManyOfAddress = parts.add(nil, 1, by: network) else {
        Issue.record("the address has two")
        return nil
      }
      #expect(admits(.ipv4(7)) != nil)
      if let first { parts.remove(first) }
      #expect(admits(network) != nil)
      // The peer of a Unix-domain socket is a proxy, or a program that the file's permissions admit.
      for _ in 0..<5 { #expect(admits(.local) != nil) }
      #expect(total.count == 8 && parts.count == 8)
      return nil
    }
    loop.stop()
    loop.join()
  }
}
