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
}
