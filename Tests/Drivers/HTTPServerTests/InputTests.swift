import ByteStreams
import Dispatch
import LoopbackSupport
import Metrics
import Reactor
import Testing

@testable import HTTPServer

/// Requests that arrive while the connection waits for input.
@Suite struct InputTests {
  private static let response = "\r\n\r\nnow"

  @Test func aSlowHeadAfterOtherRequestsIsRefusedAtItsDeadline() throws {
    let served = try ServedApplication { settings in
      settings.headTimeout = .milliseconds(50)
      settings.idleTimeout = .seconds(3_600)
    }
    let client = served.connect()
    for _ in 0..<3 {
      client.get("/now")
      #expect(client.read(through: Self.response) != nil)
    }
    client.send("GET /now HT")
    #expect(client.read(through: "408 Request Timeout") != nil)
  }

  @Test func anIdleConnectionIsClosedAfterItsLastRequest() throws {
    let served = try ServedApplication { $0.idleTimeout = .milliseconds(50) }
    let client = served.connect()
    for _ in 0..<3 {
      client.get("/now")
      #expect(client.read(through: Self.response) != nil)
    }
    #expect(client.readAll().isEmpty)
    #expect(eventually { served.metrics.openConnections.current == 0 })
  }

  @Test func aRequestInPiecesIsServed() throws {
    let served = try ServedApplication()
    let client = served.connect()
    let request = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
    for _ in 0..<2 {
      for byte in request.utf8.dropLast() {
        client.send(String(UnicodeScalar(byte)))
        #expect(served.onLoop { _ in true } == true)
      }
      #expect(!client.isReadable)
      client.send("o")
      #expect(client.read(through: "hello") != nil)
    }
  }

  @Test func responsesThatTheKernelDoesNotTakeAtOnceAreSentLater() throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/now")
    #expect(client.read(through: Self.response) != nil)
    // The responses to these requests exceed the socket's buffer.
    let count = 2_500
    client.send(String(repeating: "GET /now HTTP/1.1\r\nHost: a\r\n\r\n", count: count))
    for _ in 0..<count { #expect(client.read(through: Self.response) != nil) }
    #expect(!client.isReadable)
  }

  @Test func requestsOfEveryKindCanFollowEachOther() throws {
    let served = try ServedApplication()
    let client = served.connect()
    for round in 1...3 {
      client.get("/now")
      #expect(client.read(through: Self.response) != nil)
      client.get("/wait")
      #expect(served.isHolding(1))
      served.board.publish()
      #expect(client.read(through: "news \(round)") != nil)
      client.get("/prepared")
      #expect(client.read(through: TestApplication.preparedContent) != nil)
    }
    client.send("GET /now HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    #expect(client.read(through: "Connection: close") != nil)
    #expect(String(decoding: client.readAll(), as: UTF8.self).hasSuffix("now"))
  }

  @Test func aWaitAfterOtherRequestsEndsAtItsDeadline() throws {
    let served = try ServedApplication(wait: .milliseconds(20))
    let client = served.connect()
    for _ in 0..<2 {
      client.get("/now")
      #expect(client.read(through: Self.response) != nil)
      client.get("/wait")
      #expect(client.read(through: "nothing") != nil)
    }
  }

  @Test func anIdleConnectionIsClosedWhenTheServerDrains() throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/now")
    #expect(client.read(through: Self.response) != nil)
    served.drain()
    #expect(client.readAll().isEmpty)
  }

  @Test func aRequestThatArrivesWhileTheServerBeginsToDrainIsServed() throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/now")
    #expect(client.read(through: Self.response) != nil)
    // The request arrives after the loop has read its events, but before the drain begins in the same turn.
    let (isInTurn, goesOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    served.inOneTurn {
      served.loop.submit { context in
        // Makes the connection count as idle for so long that the drain may close it at once.
        for connection in (context.userObject as? HTTPWorker)?.connections ?? [] {
          connection.phase = .idle(context.now - HTTPWorker.drainIdle)
        }
        isInTurn.signal()
        goesOn.wait()
        return nil
      }
      served.drain()
    }
    isInTurn.wait()
    client.get("/now")
    goesOn.signal()
    #expect(client.read(through: "Connection: close") != nil)
    #expect(String(decoding: client.readAll(), as: UTF8.self).hasSuffix("now"))
  }

  @Test func aMalformedRequestAfterOthersIsRefused() throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/now")
    #expect(client.read(through: Self.response) != nil)
    client.send("GET /now\r\n\r\n")
    #expect(client.read(through: "400 Bad Request") != nil)
    _ = client.readAll()
    #expect(eventually { served.metrics.openConnections.current == 0 })
  }
}
