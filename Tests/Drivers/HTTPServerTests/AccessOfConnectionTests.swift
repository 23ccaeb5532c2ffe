import ByteStreams
import Foundation
import HTTPCodec
import Logging
import LoopbackSupport
import Metrics
import Reactor
import Synchronization
import Testing

@testable import HTTPServer

/// The access log lines of requests on a connection.
@Suite struct AccessOfConnectionTests {
  @Test func aStreamHasALineWithAllItsBytesWhenItEnds() throws {
    let output = AccessOutput()
    let served = try ServedApplication(log: output.logger, access: .all)
    served.board.end.store(3, ordering: .sequentiallyConsistent)
    let client = served.connect()
    client.send("GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    #expect(served.isHolding(1))
    for _ in 0..<3 { served.board.publish() }
    let received = client.readAll()
    #expect(eventually { served.metrics.openConnections.current == 0 })
    let lines = try output.lines()
    #expect(lines.count == 1 && lines[0]["bytes"] as? Int == received.count && lines[0]["aborted"] == nil)
    #expect(lines[0]["route"] as? String == "/test" && lines[0]["status"] as? Int == 200)
  }

  @Test func aStreamOfADisconnectedClientIsAbortedWhileSending() throws {
    let output = AccessOutput()
    let served = try ServedApplication(log: output.logger, access: .errors)
    let client = served.connect()
    client.get("/stream")
    #expect(served.isHolding(1))
    served.board.publish()
    let head = client.read(through: "news 1\n")
    #expect(head != nil)
    client.close()
    #expect(eventually { served.metrics.openConnections.current == 0 })
    let lines = try output.lines()
    #expect(lines.count == 1 && lines[0]["aborted"] as? String == "sending" && lines[0]["status"] as? Int == 200)
    #expect(lines[0]["bytes"] as? Int ?? 0 >= head?.utf8.count ?? .max)
  }

  @Test func preparedAndHeldResponsesHaveTheirStatusAndBytes() throws {
    let output = AccessOutput()
    let served = try ServedApplication(log: output.logger, access: .all)
    let client = served.connect()
    client.get("/prepared")
    let prepared = client.read(through: TestApplication.preparedContent)
    client.get("/wait")
    #expect(served.isHolding(1))
    served.board.publish()
    let waited = client.read(through: "news 1")
    client.close()
    #expect(eventually { served.metrics.openConnections.current == 0 })
    let lines = try output.lines()
    #expect(lines.map { $0["bytes"] as? Int } == [prepared?.utf8.count, waited?.utf8.count])
    #expect(lines[0]["held_seconds"] as? Double == 0)
    #expect(lines[1]["held_seconds"] as? Double ?? 0 > 0)
  }

  @Test func aResponseInTheSecondPartOfATurnIsReportedWithThatPart() throws {
    let output = AccessOutput()
    let served = try ServedApplication(log: output.logger, access: .all)
    let (descriptor, peer) = socketPair()
    var size: Int32 = 4_096
    #expect(unsafe setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &size, socklen_t(MemoryLayout<Int32>.size)) == 0)
    let isCut = served.onLoop { worker -> Bool in
      guard let channel = try? Channel(descriptor: descriptor, loop: worker.loop) else { return false }
      let connection = HTTPConnection(
        channel: channel, origin: .local, listener: HTTPListener(.client, reach: .local), worker: worker,
        index: 0)
      let access = AccessRecord(client: "x")
      connection.access = access
      for bytes in [10, 200_000] {
        access.begin(at: worker.loop.now)
        access.respond(with: .ok, id: ByteQueue())
        access.addBytes(bytes)
        access.finish()
        worker.output.withText { $0.append([UInt8](repeating: UInt8(ascii: "x"), count: bytes)) }
        guard connection.deferOutput(until: .input) else { return false }
      }
      worker.sendDeferred()
      let isCut = !connection.pending.isEmpty
      connection.reportAborted()
      channel.close()
      return isCut
    }
    _ = Foundation.close(peer)
    #expect(isCut == true)
    #expect(try output.lines().map { $0["aborted"] as? String } == [nil, "sending"])
  }

  @Test func aRequestHeldAtShutdownGetsItsResponseAndItsLine() throws {
    let output = AccessOutput()
    let served = try ServedApplication(log: output.logger, access: .all)
    let client = served.connect()
    client.get("/wait")
    #expect(served.isHolding(1))
    served.drain()
    #expect(!client.readAll().isEmpty)
    #expect(eventually { served.metrics.openConnections.current == 0 })
    let lines = try output.lines()
    #expect(lines.count == 1 && lines[0]["status"] as? Int == 200 && lines[0]["aborted"] == nil)
  }
}
