import ByteStreams
import Foundation
import HTTPCodec
import LoopbackSupport
import Metrics
import Reactor
import Synchronization
import Testing

@testable import HTTPServer

/// Responses that are sent in pieces, over real sockets.
@Suite struct StreamTests {
  @Test func aStreamIsChunkedAndItsConnectionContinues() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/stream")
    let head = try #require(client.read(through: "\r\n\r\n"))
    #expect(head.contains("Transfer-Encoding: chunked\r\n") && !head.contains("Content-Length"))
    #expect(served.isHolding(1))
    served.board.publish()
    #expect(client.read(through: "news 1\n\r\n") == "7\r\nnews 1\n\r\n")
    #expect(served.isHolding(1))
    served.board.end.store(2, ordering: .sequentiallyConsistent)
    served.board.publish()
    #expect(client.read(through: "0\r\n\r\n") == "7\r\nnews 2\n\r\n0\r\n\r\n")
    #expect(served.board.closed.current == 1)
    client.get("/now")
    #expect(client.read(through: "now") != nil)
  }

  @Test func anHTTP10ClientGetsTheStreamUpToTheEndOfTheConnection() async throws {
    let served = try ServedApplication()
    served.board.end.store(1, ordering: .sequentiallyConsistent)
    let client = served.connect()
    client.get("/stream", "1.0")
    let head = try #require(client.read(through: "\r\n\r\n"))
    #expect(!head.contains("chunked") && !head.contains("Content-Length"))
    served.board.publish()
    #expect(String(decoding: client.readAll(), as: UTF8.self) == "news 1\n")
  }

  @Test func theHeadOfAStreamHasNoContent() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/flood", method: "HEAD")
    client.get("/now")
    let text = try #require(client.read(through: "now"))
    #expect(!text.contains("x"), "\(text.prefix(300))")
    #expect(served.board.batches.current == 0 && served.board.closed.current == 1)
  }

  @Test func aSourceIsAskedAgainOnlyWhenTheKernelHasTakenTheLastBatch() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/flood", "1.0")
    // Output is pending, so the client's task waits, and the source gets no requests meanwhile.
    #expect(eventually { served.metrics.unsentBytes.current > 0 })
    let asked = served.board.batches.current
    #expect(served.onLoop { $0.slowReaders.count } == 1)
    #expect(served.board.batches.current == asked)
    // One batch is pending, not a queue of batches.
    #expect(served.metrics.unsentBytes.current <= 2 * TestApplication.floodBatch)
    served.board.end.store(asked + 20, ordering: .sequentiallyConsistent)
    #expect(client.read(through: "\r\n\r\n") != nil)
    #expect(client.readAll().count == (asked + 20) * TestApplication.floodBatch)
    #expect(eventually { served.metrics.unsentBytes.current == 0 })
  }

  /// Clients without credentials at one address count as one. Then the client that has waited longest is reset.
  @Test(arguments: [([2, 1, 1, 1], 1), ([0, 0, 0, 0], 0)])
  func theHeaviestPrincipalIsResetAlthoughAnotherHasWaitedLonger(principals: [Int], reset: Int) throws {
    // The limit has room for three batches.
    let served = try ServedApplication { $0.unsentBytes = 7 * TestApplication.floodBatch / 2 }
    var clients: [LoopbackClient] = []
    for principal in principals {
      let client = served.connect()
      client.get("/flood?\(principal)")
      clients.append(client)
      let count = clients.count
      #expect(
        eventually {
          served.onLoop { $0.slowReaders.count }.map { $0 + Int(served.metrics.slowReaders.total) } == count
        })
    }
    #expect(eventually { served.metrics.slowReaders.total == 1 })
    #expect(eventually { clients.map(\.isHungUp) == (0..<4).map { $0 == reset } })
    clients.removeAll()
    #expect(eventually { served.onLoop { $0.connections.isEmpty && $0.responder == 0 } == true })
  }

  @Test func aClientThatDoesNotReadItsStreamIsReset() async throws {
    let served = try ServedApplication { $0.writeTimeout = .milliseconds(20) }
    let client = served.connect()
    client.get("/flood")
    #expect(eventually { served.metrics.slowReaders.total == 1 })
    #expect(eventually { served.board.closed.current == 1 })
    #expect(eventually { served.metrics.openConnections.current == 0 })
    _ = client
  }

  @Test func aStreamOfADisconnectedClientIsClosed() async throws {
    let served = try ServedApplication()
    for path in ["/stream", "/flood"] {
      let client = served.connect()
      client.get(path)
      #expect(client.read(through: "\r\n\r\n") != nil)
      let before = served.board.closed.current
      client.close()
      #expect(eventually { served.board.closed.current == before + 1 }, "\(path)")
    }
    #expect(eventually { served.metrics.openConnections.current == 0 })
    #expect(served.isHolding(0))
  }

  @Test func aDrainEndsAStreamWithItsLastChunk() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/stream")
    #expect(client.read(through: "\r\n\r\n") != nil)
    #expect(served.isHolding(1))
    served.drain()
    #expect(String(decoding: client.readAll(), as: UTF8.self) == "0\r\n\r\n")
    #expect(served.board.closed.current == 1)
  }

  @Test func streamsContinueDuringADrainUntilTheirSpreadEndTimes() async throws {
    let served = try ServedApplication()
    let clients = (0..<5).map { _ in served.connect() }
    for client in clients {
      client.get("/stream")
      #expect(client.read(through: "\r\n\r\n") != nil)
    }
    #expect(served.isHolding(5))
    served.drain(releasingOver: .hours(1_000))
    #expect(served.onLoop { $0.isDraining } == true)
    served.board.publish()
    // The drain may begin with the connection of one of these clients.
    let count = clients.count { $0.read(through: "news 1\n\r\n") != nil }
    #expect(count >= 4 && served.isHolding(count))
    // The drain closes connections by their descriptors. Of any 64 consecutive descriptors, about four end in each
    // sixteenth of the drain.
    for first in [3, 1_000, 40_000] as [Int32] {
      var counts = [Int](repeating: 0, count: 16)
      for descriptor in first..<first + 64 { counts[Int(HTTPWorker.drainShare(of: descriptor) / 64)] += 1 }
      #expect(counts.allSatisfy { (2...6).contains($0) }, "\(counts)")
    }
  }

  @Test func aStreamAfterAResponseOfTheSameTurnIsSentAfterIt() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/now")
    #expect(client.read(through: "now") != nil)
    served.inOneTurn {
      client.get("/now")
      client.get("/stream")
    }
    #expect(client.read(through: "now")?.contains("Content-Length: 3\r\n") == true)
    #expect(client.read(through: "\r\n\r\n")?.contains("Transfer-Encoding: chunked\r\n") == true)
    served.board.publish()
    #expect(client.read(through: "news 1\n\r\n") == "7\r\nnews 1\n\r\n")
  }

  @Test(arguments: [
    ("Content-Length: 3", "a", "bc"), ("Transfer-Encoding: chunked", "1\r\na\r\n0\r\nA: b\r\n\r", "\n"),
  ])
  func aStreamMayBeginBeforeTheContentOfItsRequest(framing: String, first: String, last: String) async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.send("POST /stream HTTP/1.1\r\nHost: localhost\r\n\(framing)\r\nExpect: 100-continue\r\n\r\n")
    #expect(client.read(through: "\r\n\r\n")?.hasPrefix("HTTP/1.1 200 ") == true)
    #expect(served.isHolding(1))
    client.send(first)
    served.board.publish()
    #expect(client.read(through: "news 1\n\r\n") == "7\r\nnews 1\n\r\n")
    #expect(served.isHolding(1))
    served.board.end.store(1, ordering: .sequentiallyConsistent)
    served.board.publish()
    #expect(client.read(through: "0\r\n\r\n") == "7\r\nnews 2\n\r\n0\r\n\r\n")
    client.send(last)
    #expect(client.readAll().isEmpty, "only closing is unambiguous, since the content may or may not follow")
  }

  @Test func bytesReceivedDuringAStreamAreTheNextRequest() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/stream")
    #expect(client.read(through: "\r\n\r\n") != nil)
    #expect(served.isHolding(1))
    client.get("/now")
    served.board.end.store(1, ordering: .sequentiallyConsistent)
    served.board.publish()
    #expect(client.read(through: "0\r\n\r\n") != nil)
    #expect(client.read(through: "now") != nil)
  }
}
