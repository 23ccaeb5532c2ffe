import ByteStreams
import Foundation
import HTTPCodec
import LoopbackSupport
import Metrics
import Reactor
import Testing

@testable import HTTPServer

/// Requests that wait for new data, on a connection whose other end is the test.
@Suite struct WaitingTests {
  @Test func aRequestIsWokenIfNewsAndPipelinedBytesArriveInOneTurn() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/wait")
    #expect(served.isHolding(1))
    // The bytes are processed first.
    served.inOneTurn {
      client.get("/now")
      served.board.publish()
    }
    #expect(client.read(through: "news 1") != nil)
    #expect(client.read(through: "now") != nil)
  }

  @Test func aHeldRequestKeepsTheIdThatItsClientChose() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.send("GET /wait HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: id-1\r\n\r\n")
    #expect(served.isHolding(1))
    served.board.publish()
    #expect(client.read(through: "news 1 for id-1") != nil)
    client.get("/wait")
    #expect(served.isHolding(1))
    served.board.publish()
    #expect(client.read(through: "news 2")?.contains("Content-Length: 6\r\n") == true, "the next has none")
  }

  @Test func aNotificationWithoutNewDataEndsNoWait() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/wait")
    #expect(served.isHolding(1))
    served.board.notifier.notify()
    #expect(served.isHolding(1))
    #expect(!client.isReadable)
    served.board.publish()
    #expect(client.read(through: "news 1") != nil)
    #expect(served.isHolding(0))
  }

  @Test func aWokenRequestIsNotRegisteredAgain() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/wait")
    #expect(served.isHolding(1))
    served.board.publish()
    #expect(client.read(through: "news 1") != nil)
    #expect(served.onLoop { $0.heldRequests.registrationCount } == 1)
  }

  @Test func aWaitEndsAtItsDeadlineWithoutNews() async throws {
    let served = try ServedApplication(wait: .milliseconds(20))
    let client = served.connect()
    client.get("/wait")
    #expect(client.read(through: "nothing") != nil)
    client.get("/now")
    #expect(client.read(through: "now") != nil, "the connection goes on")
  }

  @Test func aRequestOfADisconnectedClientIsAbandoned() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/wait")
    #expect(served.isHolding(1))
    client.close()
    #expect(eventually { served.board.abandoned.current == 1 })
    #expect(eventually { served.metrics.openConnections.current == 0 })
    #expect(served.isHolding(0))
  }

  @Test func requestsOfOneConnectionWaitOneAfterAnother() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    for round in 1...3 {
      client.get("/wait")
      #expect(served.isHolding(1))
      #expect(served.board.held.current == 1)
      served.inOneTurn {
        // Both requests are pipelined behind the first request, which ends now.
        client.get("/now")
        client.get("/wait")
        served.board.publish()
      }
      #expect(client.read(through: "news \(2 * round - 1)") != nil)
      #expect(client.read(through: "now") != nil)
      #expect(served.isHolding(1))
      served.board.publish()
      #expect(client.read(through: "news \(2 * round)") != nil)
      #expect(served.isHolding(0))
      #expect(served.board.held.current == 0)
    }
    client.get("/wait")
    #expect(served.isHolding(1))
    client.close()
    #expect(eventually { served.metrics.openConnections.current == 0 })
    #expect(served.isHolding(0))
    #expect(served.board.held.current == 0)
    #expect(served.board.abandoned.current == 1)
  }

  @Test func aRequestWithoutItsContentIsAbandonedWhenItsClientDisconnects() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
    #expect(eventually { served.metrics.pendingBodyBytes.current > 0 })
    client.close()
    #expect(eventually { served.board.abandoned.current == 1 })
    #expect(eventually { served.metrics.pendingBodyBytes.current == 0 })
  }

  @Test func aWaitThatBeginsBeforeTheContentIsHeldOnceTheRequestHasEnded() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.send("POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    #expect(client.read(through: "100 Continue\r\n\r\n") != nil)
    #expect(served.board.held.current == 0 && served.isHolding(0))
    client.send("abc")
    #expect(served.isHolding(1))
    #expect(served.board.held.current == 1)
    served.board.publish()
    #expect(client.read(through: "news 1") != nil)
    #expect(served.board.held.current == 0)
  }

  @Test func aWaitThatBeginsDuringADrainEndsAtItsOwnTime() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.send("POST /wait HTTP/1.1\r\nHost: localhost\r\n")
    #expect(eventually { served.metrics.openConnections.current == 1 })
    served.drain(releasingOver: .hours(1_000))
    #expect(served.onLoop { $0.isDraining } == true)
    client.send("Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    #expect(client.read(through: "100 Continue\r\n\r\n") != nil)
    client.send("abc")
    #expect(served.isHolding(1))
    served.board.publish()
    #expect(client.read(through: "news 1")?.contains("Connection: close") == true)
  }

  @Test func aDrainEndsAllWaits() async throws {
    let served = try ServedApplication()
    let clients = (0..<3).map { _ in served.connect() }
    for client in clients { client.get("/wait") }
    #expect(served.isHolding(3))
    served.drain()
    for client in clients {
      #expect(client.read(through: "nothing")?.contains("Connection: close") == true)
      #expect(client.readAll().isEmpty)
    }
  }

  @Test func eachNotifierWakesItsOwnWaiters() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/wait")
    #expect(served.isHolding(1))
    // The test uses more notifiers than the worker keeps groups. The worker removes groups without entries, and keeps
    // the group with an entry.
    let groups = served.onLoop { worker -> Bool in
      guard let channel = try? Channel(descriptor: socketPair().0, loop: worker.loop) else { return false }
      let connection = HTTPConnection(
        channel: channel, origin: .local, listener: HTTPListener(.client, reach: .local), worker: worker,
        index: 0)
      let held = worker.heldRequests
      for _ in 0..<200 { held.unregister(held.register(connection, for: Notifier())) }
      channel.close()
      return worker.heldRequests.count == 1
    }
    #expect(groups == true)
    served.board.publish()
    #expect(client.read(through: "news 1") != nil)
  }

  @Test func aRequestThatMovesToAnotherNotifierIsWokenByIt() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/move")
    #expect(served.isHolding(1))
    served.board.publish()
    #expect(eventually { served.board.other.hasWaiters && !served.board.notifier.hasWaiters })
    served.board.publish()
    #expect(client.read(through: " ends")?.hasSuffix("news 2, 0 ends") == true)
  }

  @Test(arguments: [false, true])
  func aRequestThatIsNotReadyAdvancesOnceMoreAtTheEndOfItsWait(isDrained: Bool) async throws {
    let served = try ServedApplication(wait: isDrained ? .seconds(50) : .milliseconds(50))
    let client = served.connect()
    client.get("/move")
    if isDrained {
      #expect(served.isHolding(1))
      served.drain()
    }
    #expect(client.read(through: " ends")?.hasSuffix("news 0, 1 ends") == true)
  }

  /// One of many requests that wait for the same notifier, like the requests for one session.
  private final class OneOfMany: WaitingRequest {
    let notifier = Notifier()
    var isReady = false
    var heldCount: Gauge? { nil }
    func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
      isReady ? .ready : .wait(notifier, until: .distantFuture)
    }
    func finish(at now: MonotonicTime, into response: inout Response) {}
    func abandon() {}
  }

  @Test func aNotificationForOthersResumesNoWaiterOfTheSameNotifier() async throws {
    let served = try ServedApplication()
    nonisolated(unsafe) var kept: (OneOfMany, HTTPConnection)?
    let isEntered = served.onLoop { worker -> Bool in
      guard let channel = try? Channel(descriptor: socketPair().0, loop: worker.loop) else { return false }
      let connection = HTTPConnection(
        channel: channel, origin: .local, listener: HTTPListener(.client, reach: .local), worker: worker,
        index: 0)
      let request = OneOfMany()
      connection.waiting = .request(request)
      _ = connection.advanceWaiting()
      kept = (request, connection)
      for _ in 0..<2 { _ = worker.heldRequests.register(connection, for: request.notifier) }
      return worker.heldRequests.count == 2
    }
    #expect(isEntered == true)
    let notifier = try #require(kept).0.notifier
    notifier.notify()
    #expect(served.onLoop { $0.heldRequests.count } == 2)
    _ = served.onLoop { _ in kept?.0.isReady = true }
    notifier.notify()
    #expect(served.onLoop { $0.heldRequests.count } == 0)
    _ = served.onLoop { _ in
      kept?.1.channel.close()
      kept = nil
    }
  }

  /// Drains the worker of its loop. As a task, it runs after the tasks that this turn's input has resumed.
  private final class Drain: LoopTask {
    private let worker: HTTPWorker?
    init(_ context: LoopContext) { worker = context.userObject as? HTTPWorker }
    func run() async { worker?.drain(releasingOver: .zero) }
  }

  @Test func aDrainSendsTheResponsesOfItsTurnBeforeItClosesTheirConnections() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.get("/now")
    #expect(client.read(through: "now") != nil)
    served.inOneTurn {
      client.get("/now")
      served.loop.submit { Drain($0) }
    }
    #expect(eventually { served.metrics.openConnections.current == 0 }, "the idle connection is not closed")
    #expect(client.read(through: "now")?.hasPrefix("HTTP/1.1 200 ") == true, "closed without its response")
  }

  @Test func bodiesAboveTheTotalAreRefusedAtTheirEnd() async throws {
    let served = try ServedApplication { $0.pendingBodyBytes = 4 }
    let client = served.connect()
    client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabcdef")
    #expect(eventually { served.board.abandoned.current == 1 })
    client.send("ghij")
    #expect(client.read(through: "\r\n\r\n")?.hasPrefix("HTTP/1.1 503 ") == true)
    client.get("/now")
    #expect(client.read(through: "now") != nil)
  }
}
