import ByteStreams
import Foundation
import HTTPCodec
import Host
import Logging
import LoopbackSupport
import Metrics
import Reactor
import Synchronization
import Testing

@testable import HTTPServer

/// State that a test and its application access together.
final class Board: Sendable {
  let notifier = Notifier()
  /// Notifies of every piece of news but the first to requests for `/move`.
  let other = Notifier()
  let held = Gauge()
  /// The number of the newest piece of news.
  let news = Atomic<Int>(0)
  /// The number of the batch with which a stream ends.
  let end = Atomic<Int>(.max)
  /// The number of batches requested from sources.
  let batches = Atomic<Int>(0)
  let abandoned = Atomic<Int>(0)
  let closed = Atomic<Int>(0)
  /// The number of preparations that have begun.
  let preparations = Atomic<Int>(0)
  /// A preparation ends when this is signalled.
  let gate = DispatchSemaphore(value: 0)

  /// Publishes a piece of news.
  func publish() {
    news.add(1, ordering: .sequentiallyConsistent)
    notifier.notify()
    if news.current > 1 { other.notify() }
  }
}

/// `/now` responds at once, `/echo` with the content, `/large` with the content once it is prepared, `/wait` at the
/// next news, `/move` at the second, `/stream` with each piece of news, `/flood` with endless batches, and `/prepared`
/// from the same memory each time.
final class TestApplication: HTTPApplication {
  static let floodBatch = 64 * 1024

  private enum Route: Int, CaseIterable { case now, echo, large, wait, move, stream, flood, prepared }

  static let preparedContent = "prepared content"

  private let board: Board
  private let wait: TimeSpan
  private let prepared: PreparedResponse

  init(_ board: Board, wait: TimeSpan) {
    var response = Response()
    response.fields.append("X-Prepared: yes\r\n")
    response.content.text.append(Self.preparedContent)
    prepared = PreparedResponse(copying: response)
    self.board = board
    self.wait = wait
  }

  func begin(
    _ request: borrowing HTTPRequestHead, on listener: HTTPListener, from client: borrowing ClientConnection
  ) -> Exchange {
    let path = request.path.text()
    let route = Route.allCases.first { path == "/\($0)" } ?? .now
    let body: RequestBody? =
      switch route {
      case .echo: RequestBody(request.framing, limit: 1 << 20)
      case .large: RequestBody(request.framing, limit: 1 << 20, preparedFrom: 2)
      case .now, .wait, .move, .stream, .flood, .prepared: nil
      }
    // `/flood?7` belongs to principal 7.
    let principal = Int(request.query.text()) ?? 0
    return Exchange(state: route.rawValue + principal * Route.allCases.count, body: body)
  }

  func route(of request: borrowing HTTPRequestHead) -> StaticString { "/test" }

  func isClientRequest(_ request: borrowing HTTPRequestHead, on listener: HTTPListener) -> Bool { true }

  func principal(of exchange: borrowing Exchange) -> String? { nil }

  func preparation(of exchange: borrowing Exchange) -> (any BodyPreparation)? { GatedPreparation(board) }

  func finish(_ exchange: consuming Exchange, at now: MonotonicTime, into response: inout Response) -> Outcome {
    let principal = UInt64(exchange.state / Route.allCases.count)
    response.principal = principal
    switch Route(rawValue: exchange.state % Route.allCases.count) {
    case .wait: return .wait(WaitForNews(board: board, seen: board.news.current, deadline: now + wait))
    case .move: return .wait(MovingWait(board, until: now + wait))
    case .stream: return .stream(NewsSource(board))
    case .flood: return .stream(FloodSource(board, by: principal))
    case .echo: response.content.text.append(exchange.body?.bytes ?? [])
    case .large:
      response.content.text.append(exchange.body?.preparation == nil ? "small: " : "prepared: ")
      response.content.text.append(exchange.body?.bytes ?? [])
    case .prepared: response.prepared = prepared
    case .now, nil: response.content.text.append("now")
    }
    return .respond
  }

  func abandon(_ exchange: consuming Exchange) { board.abandoned.add(1, ordering: .sequentiallyConsistent) }

  func refuse(_ refusal: HTTPServerRefusal, into response: inout Response) {
    response.status =
      switch refusal {
      case .malformed(let error): error.status
      case .slowHead, .slowBody: .requestTimeout
      case .tooManyBodies, .slowPreparation: .serviceUnavailable
      }
  }
}

extension Atomic<Int> {
  var current: Int { load(ordering: .sequentiallyConsistent) }
}

private final class GatedPreparation: BodyPreparation {
  private let board: Board

  init(_ board: Board) { self.board = board }

  func prepare(_ bytes: [UInt8]) {
    board.preparations.add(1, ordering: .sequentiallyConsistent)
    board.gate.wait()
  }
}

private struct WaitForNews: WaitingRequest {
  let board: Board
  let seen: Int
  let deadline: MonotonicTime

  var heldCount: Gauge? { board.held }
  private var hasNews: Bool { board.news.current > seen }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    hasNews ? .ready : .wait(board.notifier, until: deadline)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    response.content.text.append(hasNews ? "news \(board.news.current)" : "nothing")
    if !response.requestID.isEmpty { response.content.text.append(" for \(response.requestID.bytes.text())") }
  }

  func abandon() { board.abandoned.add(1, ordering: .sequentiallyConsistent) }
}

/// Waits for the first piece of news, and then for the second one at another notifier.
private final class MovingWait: WaitingRequest {
  private let board: Board
  private let deadline: MonotonicTime
  private var causes: [WaitCause] = []

  init(_ board: Board, until deadline: MonotonicTime) {
    self.board = board
    self.deadline = deadline
  }

  var heldCount: Gauge? { nil }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    causes.append(cause)
    guard board.news.current < 2 else { return .ready }
    return .wait(board.news.current == 0 ? board.notifier : board.other, until: deadline)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    response.content.text.append("news \(board.news.current), \(causes.count { $0 == .end }) ends")
  }

  func abandon() {}
}

private final class NewsSource: Source {
  private let board: Board
  private var seen: Int

  init(_ board: Board) {
    self.board = board
    seen = board.news.current
  }

  private var hasNews: Bool { board.news.current > seen }
  var principal: UInt64 { 0 }

  func advance(at now: MonotonicTime) -> WaitStep {
    hasNews ? .ready : .wait(board.notifier, until: now + .seconds(60))
  }

  func writeLast(at now: MonotonicTime, into content: inout ResponseContent) {}

  func next(at now: MonotonicTime, into content: inout ResponseContent) -> SourceStep {
    board.batches.add(1, ordering: .sequentiallyConsistent)
    guard hasNews else { return .wait }
    seen += 1
    content.text.append("news \(seen)\n")
    return seen >= board.end.current ? .end : .more
  }

  func close() { board.closed.add(1, ordering: .sequentiallyConsistent) }
}

private final class FloodSource: Source {
  private let board: Board
  private let batch = ByteString([UInt8](repeating: UInt8(ascii: "x"), count: TestApplication.floodBatch))
  init(_ board: Board, by principal: UInt64) {
    self.board = board
    self.principal = principal
  }

  let principal: UInt64

  func advance(at now: MonotonicTime) -> WaitStep { .ready }

  func writeLast(at now: MonotonicTime, into content: inout ResponseContent) {}

  func next(at now: MonotonicTime, into content: inout ResponseContent) -> SourceStep {
    content.append(ByteSlice(batch))
    board.batches.add(1, ordering: .sequentiallyConsistent)
    return board.batches.current >= board.end.current ? .end : .more
  }

  func close() { board.closed.add(1, ordering: .sequentiallyConsistent) }
}

/// A test application on a loop of its own.
final class ServedApplication {
  let board = Board()
  let metrics: HTTPServerMetrics
  let loop: EventLoop

  private let server: HTTPServer

  init(
    wait: TimeSpan = .seconds(50), log: Logger = Logger(level: .error, format: .json), access: AccessLog.Mode = .off,
    preparationWait: TimeSpan? = nil, _ change: (inout HTTPServerSettings) -> Void = { _ in }
  ) throws {
    var settings = HTTPServerSettings()
    // On a busy machine, minutes may pass between two steps of a test.
    settings.idleTimeout = .hours(1)
    change(&settings)
    metrics = HTTPServerMetrics(MetricsRegistry())
    let server = HTTPServer(
      settings, HTTPServer.ConnectionLimits(clients: 10, management: 10),
      logger: log, access: access, metrics: metrics, preparationWait: preparationWait)
    self.server = server
    loop = try EventLoop(index: 0)
    server.start(clients: [], management: [], on: [loop]) { [board] _ in TestApplication(board, wait: wait) }
  }

  /// Opens a connection to the application.
  func connect() -> LoopbackClient {
    let (client, descriptor) = socketPair()
    loop.submit { context in
      let worker = context.userObject as? HTTPWorker
      worker?.accept(descriptor, from: .unix(path: ""), on: HTTPListener(.client, reach: .local))
      return nil
    }
    return LoopbackClient(client)
  }

  /// Blocks the loop during `body`, so that it processes all of its effects in one turn.
  func inOneTurn(_ body: () -> Void) {
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

  /// Returns a fact that is read on the loop's thread.
  func onLoop<Fact: Sendable>(_ fact: @escaping @Sendable (HTTPWorker) -> Fact) -> Fact? {
    let done = DispatchSemaphore(value: 0)
    let result = Mutex<Fact?>(nil)
    loop.submit { context in
      let found = (context.userObject as? HTTPWorker).map(fact)
      result.withLock { $0 = found }
      done.signal()
      return nil
    }
    done.wait()
    return result.withLock { $0 }
  }

  /// Whether `count` connections have a held request.
  func isHolding(_ count: Int) -> Bool { eventually { onLoop { $0.heldRequests.count } == count } }

  func drain(releasingOver spread: TimeSpan = .zero) { server.drain([loop], releasingOver: spread) {} }

  deinit {
    loop.stop()
    loop.join()
  }
}

extension LoopbackClient {
  func get(_ path: String, _ version: String = "1.1", method: String = "GET") {
    send("\(method) \(path) HTTP/\(version)\r\nHost: localhost\r\n\r\n")
  }
}
