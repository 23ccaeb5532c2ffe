import ByteStreams
import Configuration
import Foundation
import Inbox
import Logging
import Metrics
import Reactor
import Sessions
import Testing
import Upstream

@testable import Gateway

/// A client connection on a loop of its own, whose other end the test holds.
@Suite struct HeldPollTests {
  private func send(_ text: String, on descriptor: Int32) {
    let bytes = Array(text.utf8)
    let sent = unsafe bytes.withUnsafeBytes { unsafe write(descriptor, $0.baseAddress, $0.count) }
    #expect(sent == bytes.count)
  }

  /// Bytes that wait to be read on `descriptor`, within the deadline.
  private func hasInput(_ descriptor: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return unsafe poll(&entry, 1, 20_000) == 1
  }

  private func makeShared() throws -> GatewayShared {
    var settings = GatewaySettings()
    settings.upstream.url = "ws://127.0.0.1:1/"
    let logger = Logger(level: .error, format: .json)
    let plan = try GatewayPlan(settings)
    let session = Session(
      Session.defaultName, plan.sessions[0].settings, retention: Retention(), logger: logger,
      metrics: MetricsRegistry(),
      dials: DialGate())
    let descriptors = DescriptorBudget(limit: 1024, inUse: 20, loops: 1, clients: 10, management: 10)
    return GatewayShared(plan, descriptors: descriptors, logger: logger, metrics: MetricsRegistry(), session: session)
  }

  /// A loop that serves `server`.
  private func serve(_ server: Int32, _ shared: GatewayShared) throws -> EventLoop {
    let loop = try EventLoop(index: 0)
    loop.submit { context in
      let worker = HTTPWorker(loop: context, shared: shared)
      context.resident = worker
      worker.welcome(server, from: .unix(path: ""), .client, .local)
      return nil
    }
    return loop
  }

  /// Stops the loop, so that all that `body` does is found in one turn.
  private func inOneTurn(of loop: EventLoop, _ body: () -> Void) {
    let (isStopped, goesOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    loop.submit { _ in
      isStopped.signal()
      goesOn.wait()
      return nil
    }
    isStopped.wait()
    body()
    goesOn.signal()
  }

  @Test func aPollIsWokenWhereNewsAndPipelinedBytesComeInOneTurn() async throws {
    let shared = try makeShared()
    let (client, server) = socketPair()
    let loop = try serve(server, shared)
    let request = "GET /v1/messages?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    send(request, on: client)
    #expect(eventually { shared.heldPolls.current == 1 })
    // The bytes are looked at first.
    inOneTurn(of: loop) {
      send(request, on: client)
      shared.session.inbox.append(Array("news".utf8).span, kind: .text, time: 0, now: ProcessFacts.monotonicTime())
    }
    #expect(hasInput(client), "the poll is not answered")

    close(client)
    loop.stop()
    loop.join()
  }

  /// Drains the worker of its loop. As a task it runs after those that the input of the turn has resumed.
  private final class Drain: LoopTask {
    private let worker: HTTPWorker?
    init(_ context: LoopContext) { worker = context.resident as? HTTPWorker }
    func run() async { worker?.drain() }
  }

  @Test func aDrainSendsTheResponsesOfItsTurnBeforeItClosesTheirConnections() async throws {
    let shared = try makeShared()
    let (client, server) = socketPair()
    let loop = try serve(server, shared)
    let request = "GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n"
    send(request, on: client)
    #expect(hasInput(client))
    var text = [UInt8](repeating: 0, count: 1 << 16)
    #expect(read(client, &text, text.count) > 0)
    inOneTurn(of: loop) {
      send(request, on: client)
      loop.submit { Drain($0) }
    }
    #expect(eventually { shared.openConnections.current == 0 }, "the idle connection is not closed")
    let count = read(client, &text, text.count)
    #expect(count > 0 && text.starts(with: Array("HTTP/1.1 200 ".utf8)), "closed without its response")

    close(client)
    loop.stop()
    loop.join()
  }
}
