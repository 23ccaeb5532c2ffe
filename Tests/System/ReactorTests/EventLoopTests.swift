import ByteStreams
import Glibc
import Host
import Synchronization
import Testing
import Threading

@testable import Reactor

/// A loop task that runs a closure.
final class Job: LoopTask {
  let body: () async -> Void
  init(_ body: @escaping () async -> Void) { self.body = body }
  func run() async { await body() }
}

/// Runs `body` on a new loop, and then ends the loop.
func onLoop(_ body: @escaping @Sendable (LoopContext) async -> Void) async throws {
  let loop = try EventLoop(index: 0)
  await withCheckedContinuation { done in
    loop.submit { context in
      Job {
        await body(context)
        done.resume()
      }
    }
  }
  loop.stop()
  loop.join()
}

@Suite struct EventLoopTests {
  /// The system may give the identity of a joined thread to a new thread.
  @Test func aLoopThatHasEndedCanBeJoinedAgainOnAThreadWithItsIdentity() async throws {
    for _ in 0..<32 {
      let ended = try EventLoop(index: 0)
      ended.stop()
      ended.join()
      try await onLoop { _ in
        ended.join()
      }
    }
  }

  @Test func transfersOverTCPBothWaysAndReportsTheEnd() async throws {
    try await onLoop { loop in
      do {
        let listener = try Channel(
          descriptor: Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: true), loop: loop)
        let address = try Sockets.localAddress(of: listener.descriptor)
        let client = try Sockets.connect(to: address, on: loop)
        #expect(await client.writable() == .ready)
        #expect(client.takeSocketError() == 0)
        #expect(await listener.readable() == .ready)
        guard case .connection(let descriptor, let peer) = Sockets.accept(from: listener) else {
          Issue.record("nothing was accepted")
          return
        }
        #expect(peer.host == "127.0.0.1")
        let server = try Channel(descriptor: descriptor, loop: loop)

        // The data exceeds the socket buffers, so that both sides must wait in between.
        let total = 8 << 20
        loop.spawn(
          Job {
            var queue = OutputQueue()
            let piece = ByteString([UInt8](repeating: 7, count: total / 4))
            for _ in 0..<4 {
              queue.withText { $0.append(UInt8(1)) }
              queue.append(ByteSlice(piece))
            }
            while queue.flush(to: client, atMost: .max) == .blocked { #expect(await client.writable() == .ready) }
            client.shutdownWriting()
          })
        var received = 0
        reading: while true {
          switch server.receive() {
          case .bytes(let count):
            #expect(server.received.count == count)
            received += count
          case .wouldBlock: #expect(await server.readable() == .ready)
          case .endOfStream: break reading
          case .failed(let code): Issue.record("read failed: \(code)")
          }
        }
        #expect(received == total + 4)
        client.close()
        server.close()
        listener.close()
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func endsAWaitAtItsDeadlineAndNotBefore() async throws {
    try await onLoop { loop in
      do {
        let listener = try Channel(
          descriptor: Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: true), loop: loop)
        _ = Sockets.accept(from: listener)
        let deadline = loop.now + .milliseconds(20)
        #expect(await listener.readable(until: deadline) == .deadline)
        #expect(loop.now >= deadline)
        listener.close()
        #expect(await listener.readable() == .closed)
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func aBurstFromAnyThreadsWakesTheLoopOnceAndEachTargetOnce() async throws {
    final class Counter: SignalTarget {
      var wakeUps = 0
      func signalled() { wakeUps += 1 }
    }
    let threads = 4
    let posts = 10_000
    let finished = Atomic(0)
    try await onLoop { loop in
      let counters = (0..<threads).map { _ in Counter() }
      let signals = counters.map { loop.makeSignal(for: $0) }
      let mailbox = loop.executor.mailbox
      // This loop is busy while all threads post.
      for signal in signals {
        #expect(
          DetachedThread.start(named: "poster") {
            for _ in 0..<posts { signal.notify() }
            finished.add(1, ordering: .releasing)
          })
      }
      while finished.load(ordering: .acquiring) < threads { sched_yield() }
      // The counter of an eventfd is the number of writes: 40,000 posts caused one write.
      var writes: UInt64 = 0
      #expect(read(mailbox.descriptor, &writes, 8) == 8 && writes == 1)
      #expect(write(mailbox.descriptor, &writes, 8) == 8)
      while counters.contains(where: { $0.wakeUps == 0 }) { await loop.yieldTurn() }
      await loop.yieldTurn()
      #expect(counters.map(\.wakeUps) == [1, 1, 1, 1])

      // A later post wakes the loop again.
      #expect(DetachedThread.start(named: "poster") { signals[0].notify() })
      while counters[0].wakeUps < 2 { await loop.yieldTurn() }
      #expect(counters.map(\.wakeUps) == [2, 1, 1, 1])
      for signal in signals { signal.close() }
    }
  }

  @Test func wakesAWaitingTaskByItsTokenAndLeavesTheSocketOpen() async throws {
    try await onLoop { loop in
      do {
        let listener = try Channel(
          descriptor: Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: true), loop: loop)
        _ = Sockets.accept(from: listener)
        loop.spawn(Job { #expect(listener.wake()) })
        #expect(await listener.readable(until: loop.now + .seconds(30)) == .woken)
        #expect(!listener.wake())
        #expect(!listener.isClosed)
        listener.close()
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func aLookUpWithoutAThreadFails() async {
    let resolver = Resolver { _ in false }
    for _ in 0..<3 {
      #expect(
        await resolver.resolve(host: "localhost", port: 80)
          == .failure(ResolveError(host: "localhost", reason: "the system cannot start a thread for the lookup")))
    }
    #expect(await resolver.resolve(host: "127.0.0.1", port: 80) == .success([.ipv4(0x7F00_0001, port: 80)]))
  }

  @Test func resolvesNamesOnItsOwnThreadsAndNumbersAtOnce() async throws {
    let resolver = Resolver()
    #expect(await resolver.resolve(host: "127.0.0.1", port: 80) == .success([.ipv4(0x7F00_0001, port: 80)]))
    let local = try await resolver.resolve(host: "localhost", port: 81).get()
    #expect(local.contains { $0.port == 81 })
    let refused = await resolver.resolve(host: "name.invalid", port: 1)
    #expect(throws: ResolveError.self) { try refused.get() }
  }

  @Test func refusesAnAddressInUse() throws {
    let first = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: true)
    let address = try Sockets.localAddress(of: first)
    #expect(throws: SystemError.self) { try Sockets.checkUnused(address) }
    SystemCall.close(first)
    try Sockets.checkUnused(address)
  }
}

@Suite struct SocketAddressTests {
  @Test(arguments: [("127.0.0.1", "127.0.0.1:5"), ("::1", "[::1]:5"), ("2001:db8::2", "[2001:db8::2]:5")])
  func readsAndWritesNumericAddresses(host: String, description: String) {
    #expect(SocketAddress(numericHost: host, port: 5)?.description == description)
  }

  @Test func doesNotParseNamesAsAddresses() {
    #expect(SocketAddress(numericHost: "localhost", port: 1) == nil)
  }
}
