import ByteStreams
import Foundation
import HTTPCodec
import LoopbackSupport
import Metrics
import Reactor
import Synchronization
import Testing
import Threading
import Totals

@testable import HTTPServer

/// Large bodies, which another thread prepares. The test decides when a preparation ends.
@Suite struct BodyThreadTests {
  private func post(_ body: String, by client: LoopbackClient) {
    client.send("POST /large HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
  }

  private func begins(_ count: Int, in served: ServedApplication) -> Bool {
    eventually { served.board.preparations.current == count }
  }

  @Test func otherRequestsOfTheLoopAreServedWhileABodyIsPrepared() async throws {
    let served = try ServedApplication()
    let (client, other) = (served.connect(), served.connect())
    post("content", by: client)
    #expect(begins(1, in: served))
    for _ in 0..<3 {
      other.get("/now")
      #expect(other.read(through: "now") != nil)
    }
    post("x", by: other)
    #expect(other.read(through: "small: x") != nil, "a small one needs no thread")
    #expect(!client.isReadable)
    served.board.gate.signal()
    #expect(client.read(through: "prepared: content") != nil)
    client.get("/now")
    #expect(client.read(through: "now") != nil, "the connection goes on")
    #expect(served.metrics.pendingBodyBytes.current == 0)
  }

  @Test func aPipelinedRequestWaitsForThePreparation() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    post("content", by: client)
    client.get("/now")
    post("again", by: client)
    for text in ["prepared: content", "now", "prepared: again"] {
      served.board.gate.signal()
      #expect(client.read(through: text) != nil)
    }
  }

  @Test func aThreadPreparesOneBodyAtATime() async throws {
    let served = try ServedApplication()
    let clients = (0..<3).map { _ in served.connect() }
    for (index, client) in clients.enumerated() {
      post("content \(index)", by: client)
      #expect(served.isHolding(index + 1))
    }
    for (index, client) in clients.enumerated() {
      #expect(begins(index + 1, in: served))
      served.board.gate.signal()
      #expect(client.read(through: "prepared: content \(index)") != nil)
    }
  }

  @Test func theBodyOfADisconnectedClientIsNotPrepared() async throws {
    let served = try ServedApplication()
    let (first, second, third) = (served.connect(), served.connect(), served.connect())
    post("first", by: first)
    #expect(begins(1, in: served))
    for (index, client) in [second, third].enumerated() {
      post("next", by: client)
      #expect(served.isHolding(index + 2))
    }
    // One body is being prepared, and the other waits.
    first.close()
    second.close()
    #expect(eventually { served.board.abandoned.current == 2 })
    for _ in 0..<2 { served.board.gate.signal() }
    #expect(third.read(through: "prepared: next") != nil)
    #expect(served.board.preparations.current == 2)
    #expect(served.metrics.pendingBodyBytes.current == 0)
  }

  @Test func aBodyIsCountedWhileItIsPreparedAndMayBeRefused() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    post("content", by: client)
    #expect(begins(1, in: served))
    #expect(served.metrics.pendingBodyBytes.current == 7)
    #expect(served.onLoop { $0.connections[0].dropBody() } != nil)
    #expect(client.read(through: "503") != nil)
    #expect(served.board.abandoned.current == 1)
    #expect(served.metrics.pendingBodyBytes.current == 0)
    served.board.gate.signal()
    client.get("/now")
    #expect(client.read(through: "now") != nil)
  }

  @Test func aBodyThatIsNotPreparedInTimeIsRefused() async throws {
    let served = try ServedApplication(preparationWait: .milliseconds(20))
    let client = served.connect()
    post("content", by: client)
    #expect(client.read(through: "503") != nil)
    #expect(served.board.abandoned.current == 1)
    served.board.gate.signal()
    client.get("/now")
    #expect(client.read(through: "now") != nil)
  }

  @Test func aDrainDoesNotEndThePreparation() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    post("content", by: client)
    #expect(begins(1, in: served))
    served.drain()
    #expect(served.isHolding(1))
    #expect(!client.isReadable)
    served.board.gate.signal()
    #expect(client.read(through: "prepared: content") != nil)
    #expect(client.readAll().isEmpty)
  }

  @Test func aClientThatHasClosedItsSendingSideGetsItsResponse() async throws {
    let served = try ServedApplication()
    let client = served.connect()
    client.send("POST /large HTTP/1.0\r\nHost: localhost\r\nContent-Length: 7\r\n\r\ncontent")
    client.closeSending()
    #expect(begins(1, in: served))
    #expect(served.isHolding(1))
    served.board.gate.signal()
    #expect(client.read(through: "prepared: content") != nil)
  }

  // MARK: The thread

  private final class Note: BodyPreparation {
    private let name: String
    private let notes: Notes

    init(_ name: String, in notes: Notes) { (self.name, self.notes) = (name, notes) }

    func prepare(_ bytes: [UInt8]) { notes.names.withLock { $0.append(name) } }
  }

  private final class Notes: Sendable {
    let names = Locked<[String]>([])
    let threads = Locked<[@Sendable () -> Void]>([])

    func work(_ name: String, of user: UInt64) -> BodyWork {
      BodyWork(
        Note(name, in: self), [1], of: TotalUser(address: user), notifying: Notifier(), until: .distantFuture)
    }
  }

  @Test func clientsTakeTurns() {
    let notes = Notes()
    let thread = BodyThread { body in
      notes.threads.withLock { $0.append(body) }
      return true
    }
    let works = ["a1", "a2", "a3"].map { notes.work($0, of: 1) } + [notes.work("b1", of: 2)]
    for work in works { thread.add(work) }
    thread.cancel(works[1])
    #expect(works.map(\.isDone) == [false, true, false, false])
    let threads = notes.threads.withLock { $0 }
    #expect(threads.count == 1)
    for run in threads { run() }
    #expect(notes.names.withLock { $0 } == ["a1", "b1", "a3"])
    #expect(!works.map(\.isDone).contains(false))
    thread.add(notes.work("a4", of: 1))
    #expect(notes.threads.withLock { $0.count } == 2, "the first one has ended")
  }

  @Test func withoutAThreadTheLoopPreparesTheBody() {
    let notes = Notes()
    let thread = BodyThread { _ in false }
    let works = ["a1", "a2"].map { notes.work($0, of: 1) }
    for work in works { thread.add(work) }
    #expect(notes.names.withLock { $0 } == ["a1", "a2"])
    #expect(!works.map(\.isDone).contains(false))
  }
}
