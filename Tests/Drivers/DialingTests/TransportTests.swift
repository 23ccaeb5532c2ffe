import ByteStreams
import Glibc
import Host
import TLSEngine
import Testing

@testable import Dialing
@testable import Reactor

@Suite struct TransportTests {
  /// Output left after a failed write would be flushed again at every turn, forever.
  @Test(arguments: [false, true])
  func discardsOutputAfterAFailedWrite(overTLS: Bool) async throws {
    try await withConnection { channel, peer in
      var linger = Glibc.linger(l_onoff: 1, l_linger: 0)
      setsockopt(peer, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
      close(peer)
      _ = await channel.readable()
      let transport = Transport(channel)
      if overTLS {
        var settings = TLSClientSettings()
        settings.verification = .offForTestsOnly
        let connection = try TLSConnection(to: "localhost", context: TLSContext(settings))
        transport.secure(with: connection, received: ByteQueue().bytes)
        #expect(try !transport.advanceHandshake())
      } else {
        transport.output.append("hello" as StaticString)
      }
      #expect(transport.unsent > 0)
      guard case .failed = transport.flush() else {
        Issue.record("a write to a peer that has reset succeeded")
        return
      }
      #expect(transport.unsent == 0)
      #expect(transport.isBroken)
      transport.output.append("more" as StaticString)
      #expect(transport.flush() == .failed(EPIPE))
      transport.close()
    }
  }

  /// A large message must not delay the other connections of the loop.
  @Test func aFlushPassesAtMostItsLimitToTheKernel() async throws {
    try await withConnection { channel, peer in
      defer { close(peer) }
      let limit = 100_000
      var received: [UInt8] = []
      let transport = Transport(channel)
      let content = ByteString((0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
      let text = [UInt8](repeating: 0x78, count: 250_000)
      transport.output.append(text)
      transport.append(LargeSlice(ByteSlice(content)))
      transport.output.append("end" as StaticString)
      let size = text.count + content.count + 3
      #expect(transport.end == UInt64(size))
      #expect(transport.outputStart == UInt64(size - 3))
      var pauses = 0
      while true {
        let before = transport.unsent
        let result = transport.flush(atMost: limit)
        #expect(before - transport.unsent <= limit)
        #expect(transport.end == UInt64(size), "positions do not depend on what was sent")
        #expect(transport.written == UInt64(size - transport.unsent))
        Self.receive(from: peer, into: &received)
        switch result {
        case .done: break
        case .paused:
          pauses += 1
          #expect(before - transport.unsent == limit)
          continue
        case .blocked:
          _ = await channel.writable()
          continue
        case .failed(let code):
          Issue.record("the flush failed: \(code)")
        }
        break
      }
      #expect(pauses > 0)
      transport.close()
      while Self.receive(from: peer, into: &received, flags: 0) {}
      #expect(received == text + [UInt8](copying: content.bytes) + Array("end".utf8))
    }
  }

  /// Reads once. Returns false at the end of the stream.
  @discardableResult
  private static func receive(
    from peer: Int32, into received: inout [UInt8], flags: Int32 = Int32(MSG_DONTWAIT)
  ) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 1 << 18)
    let count = recv(peer, &buffer, buffer.count, flags)
    if count > 0 { received += buffer[..<count] }
    return count > 0
  }

  /// Runs `body` on a loop, with a channel and the socket of its peer, which `body` closes.
  private func withConnection(_ body: @escaping @Sendable (Channel, Int32) async throws -> Void) async throws {
    let loop = try EventLoop(index: 0)
    await withCheckedContinuation { done in
      loop.submit { ConnectedTask(loop: $0, body: body, done: done) }
    }
    loop.stop()
    loop.join()
  }

  private final class ConnectedTask: LoopTask {
    private let loop: LoopContext
    private let body: (Channel, Int32) async throws -> Void
    private let done: CheckedContinuation<Void, Never>

    init(
      loop: LoopContext, body: @escaping (Channel, Int32) async throws -> Void,
      done: CheckedContinuation<Void, Never>
    ) {
      self.loop = loop
      self.body = body
      self.done = done
    }

    func run() async {
      do { try await connect() } catch { Issue.record(error) }
      done.resume()
    }

    private func connect() async throws {
      let listener = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: false)
      defer { close(listener) }
      let address = try Sockets.localAddress(of: listener)
      let channel = try Sockets.connect(to: address, on: loop, userTimeout: .seconds(30))
      _ = await channel.writable()
      try await body(channel, accept(listener, nil, nil))
    }
  }
}
