import ByteStreams
import Glibc
import Host
import Testing

@testable import Reactor

/// The number of connections that wait for `accept`.
@Suite struct PendingConnectionsTests {
  @Test func connectionsAreCountedUntilTheyAreAccepted() async throws {
    try await onLoop { loop in
      do {
        let address = SocketAddress.ip(try #require(IPAddress("127.0.0.1")), port: 0)
        let listener = try Channel(descriptor: try Sockets.listen(on: address, reusesPort: false), loop: loop)
        let bound = try Sockets.localAddress(of: listener.descriptor)
        #expect(Sockets.pendingConnections(of: listener) == 0)
        let clients = try (0..<3).map { _ in try Sockets.connect(to: bound, on: loop) }
        while Sockets.pendingConnections(of: listener) < 3 { await loop.yieldTurn() }
        for left in [2, 1, 0] {
          guard case .connection(let descriptor, _) = Sockets.accept(from: listener) else {
            Issue.record("a pending connection was not accepted")
            return
          }
          close(descriptor)
          #expect(Sockets.pendingConnections(of: listener) == left)
        }
        for channel in clients + [listener] { channel.close() }
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func theNumberIsUnknownForAUnixDomainSocket() async throws {
    try await onLoop { loop in
      do {
        let path = "/tmp/drawbridge-pending-\(getpid())"
        let address = SocketAddress.unix(path: path)
        let listener = try Channel(descriptor: try Sockets.listen(on: address, reusesPort: false), loop: loop)
        let client = try Sockets.connect(to: address, on: loop)
        #expect(Sockets.pendingConnections(of: listener) == 0)
        client.close()
        listener.close()
        unsafe unlink(path)
      } catch {
        Issue.record(error)
      }
    }
  }
}
