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
    let loop = try EventLoop(index: 0)
    await withCheckedContinuation { done in
      loop.submit { Attempt(loop: $0, overTLS: overTLS, done: done) }
    }
    loop.stop()
    loop.join()
  }

  /// Writes to a peer that has reset the connection.
  private final class Attempt: LoopTask {
    private let loop: LoopContext
    private let overTLS: Bool
    private let done: CheckedContinuation<Void, Never>

    init(loop: LoopContext, overTLS: Bool, done: CheckedContinuation<Void, Never>) {
      self.loop = loop
      self.overTLS = overTLS
      self.done = done
    }

    func run() async {
      do { try await write() } catch { Issue.record(error) }
      done.resume()
    }

    private func write() async throws {
      let listener = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: false)
      defer { close(listener) }
      let address = try Sockets.localAddress(of: listener)
      let channel = try Sockets.connect(to: address, on: loop, userTimeout: .seconds(30))
      _ = await channel.writable()
      let peer = accept(listener, nil, nil)
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
    let loop = try EventLoop(index: 0)
    await withCheckedContinuation { done in
      loop.submit { Flushes(loop: $0, done: done) }
    }
    loop.stop()
    loop.join()
  }

  /// Sends texts and large contents, a part at a time, to a peer that reads.
  private final class Flushes: LoopTask {
    private static let limit = 100_000
    private let loop: LoopContext
    private let done: CheckedContinuation<Void, Never>
    private var received: [UInt8] = []

    init(loop: LoopContext, done: CheckedContinuation<Void, Never>) {
      self.loop = loop
      self.done = done
    }

    func run() async {
      do { try await write() } catch { Issue.record(error) }
      done.resume()
    }

    private func write() async throws {
      let listener = try Sockets.listen(on: .ipv4(0x7F00_0001, port: 0), reusesPort: false)
      defer { close(listener) }
      let address = try Sockets.localAddress(of: listener)
      let channel = try Sockets.connect(to: address, on: loop, userTimeout: .seconds(30))
      _ = await channel.writable()
      let peer = accept(listener, nil, nil)
      defer { close(peer) }
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
        let result = transport.flush(atMost: Self.limit)
        #expect(before - transport.unsent <= Self.limit)
        #expect(transport.end == UInt64(size), "positions do not depend on what was sent")
        #expect(transport.written == UInt64(size - transport.unsent))
        receive(from: peer)
        switch result {
        case .done: break
        case .paused:
          pauses += 1
          #expect(before - transport.unsent == Self.limit)
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
      while receive(from: peer, flags: 0) {}
      #expect(received == text + [UInt8](copying: content.bytes) + Array("end".utf8))
    }

    /// Reads once. Returns false at the end of the stream.
    @discardableResult
    private func receive(from peer: Int32, flags: Int32 = Int32(MSG_DONTWAIT)) -> Bool {
      var buffer = [UInt8](repeating: 0, count: 1 << 18)
      let count = recv(peer, &buffer, buffer.count, flags)
      if count > 0 { received += buffer[..<count] }
      return count > 0
    }
  }
}
