import ByteStreams
import CLinux
import Glibc
import Testing

@testable import Reactor

@Suite struct OutputQueueTests {
  /// Two connected non-blocking sockets: a channel, and the descriptor of its peer.
  private func pair(_ loop: LoopContext) throws -> (Channel, Int32) {
    var ends: [Int32] = [0, 0]
    let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
    try #require(socketpair(AF_UNIX, kind, 0, &ends) == 0)
    return (try Channel(descriptor: ends[0], loop: loop), ends[1])
  }

  /// Reads all available bytes. Returns their number.
  private func drain(_ descriptor: Int32) -> Int {
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    var total = 0
    while true {
      let count = read(descriptor, &piece, piece.count)
      guard count > 0 else { return total }
      total += count
    }
  }

  @Test func aSliceIsReleasedWhenItsLastByteIsSentAndNotWhenTheQueueIsEmpty() async throws {
    try await onLoop { loop in
      do {
        let (channel, peer) = try pair(loop)
        var first = [UInt8](repeating: 1, count: 100_000)
        let large = ByteString([UInt8](repeating: 2, count: 4 << 20))
        var queue = OutputQueue()
        queue.append(ByteSlice(ByteString(first)))
        queue.append(ByteSlice(large))
        #expect(queue.memoryBytes == 100_000 + large.count)
        #expect(queue.flush(to: channel) == .blocked)
        #expect(queue.count < large.count)
        // A slice keeps its whole storage while any of it is unsent.
        #expect(queue.memoryBytes == large.count)
        // An array with a single reference is changed in place.
        let address = first.withUnsafeBytes { $0.baseAddress }
        first[0] = 3
        #expect(first.withUnsafeBytes { $0.baseAddress } == address, "the queue still refers to the first slice")
        while queue.flush(to: channel) == .blocked { _ = drain(peer) }
        #expect(queue.memoryBytes == 0)
        channel.close()
        close(peer)
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func theMemoryOfABlockedQueueIsProportionalToItsUnsentBytes() async throws {
    try await onLoop { loop in
      do {
        let (channel, peer) = try pair(loop)
        var queue = OutputQueue()
        let total = 8 << 20
        queue.withText { text in
          for _ in 0..<total / 1024 { text.append([UInt8](repeating: 4, count: 1024)) }
        }
        var received = 0
        while queue.flush(to: channel) == .blocked {
          queue.releaseSpareCapacity()
          #expect(queue.memoryBytes <= max(2 * queue.count, 4096))
          received += drain(peer)
        }
        received += drain(peer)
        #expect(received == total)
        channel.close()
        close(peer)
      } catch {
        Issue.record(error)
      }
    }
  }

  /// A large response must not delay the other connections of the loop.
  @Test(arguments: [777, 10_000])
  func aFlushPassesAtMostItsLimitToTheKernel(limit: Int) async throws {
    try await onLoop { loop in
      do {
        let (channel, peer) = try pair(loop)
        var queue = OutputQueue()
        for size in [1, 7_000, 3, 20_000] {
          queue.withText { $0.append([UInt8](repeating: 5, count: size)) }
          queue.append(ByteSlice(ByteString([UInt8](repeating: 6, count: 2 * size))))
        }
        let total = queue.count
        var received = 0
        while queue.count > limit {
          let before = queue.count
          #expect(queue.flush(to: channel, atMost: limit) == .paused)
          #expect(before - queue.count == limit)
          let count = drain(peer)
          received += count
          #expect(count == limit)
        }
        #expect(queue.flush(to: channel, atMost: limit) == .done)
        received += drain(peer)
        #expect(received == total)
        channel.close()
        close(peer)
      } catch {
        Issue.record(error)
      }
    }
  }
}
