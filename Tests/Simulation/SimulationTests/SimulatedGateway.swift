import Access
import ByteStreams
import Configuration
import Dialing
import Foundation
import HTTPCodec
import HTTPServer
import Host
import Inbox
import Journal
import Logging
import RedisStore
import Replication
import Submissions
import Synchronization
import UpstreamSession

@testable import API
@testable import Metrics
@testable import Reactor
@testable import Sessions
@testable import Upstream

/// One gateway process, from its start to its death. It has the API, the sessions and the loop of the program, and the
/// simulation runs its turns.
final class SimulatedGateway: JournalHooks {
  /// Receives the events of a process.
  protocol Observer: AnyObject {
    func submitted(_ count: Int, by gateway: SimulatedGateway)
  }

  let number: Int
  let queue = GatewayQueue()
  let bug: PlantedBug?
  private(set) var isDead = false
  /// Whether it does not run, as after SIGSTOP.
  var isPaused = false
  /// Whether it cannot reach the store.
  var isCut = false
  /// When its right to be the holder ends, unless it is renewed.
  var deadline = MonotonicTime.distantFuture
  private(set) var tenure: Tenure?
  /// The number of the store's rows when this gateway last read them as a follower; nil if it does not follow.
  private(set) var rowsRead: Int?
  private let loop: EventLoop
  private let slot: SharedSlot
  private let shared: SharedSessions
  private let api: API
  private let registry = MetricsRegistry()
  private let peer: ScriptedPeer
  private let isAlone: Bool
  private unowned let observer: any Observer
  /// One logger for all gateways, since each logger has a thread.
  private static let logger = Logger(level: .error, format: .text)
  private var held: [HeldRequest] = []

  /// - Parameter isAlone: whether its store is a file.
  init(
    _ number: Int, _ settings: GatewaySettings, isAlone: Bool, _ peer: ScriptedPeer, bug: PlantedBug?,
    _ observer: any Observer
  ) throws {
    self.number = number
    self.isAlone = isAlone
    self.peer = peer
    self.bug = bug
    self.observer = observer
    loop = try EventLoop(turnedByCaller: number)
    let logger = Self.logger
    let limiter = ConcurrentAttemptLimiter()
    slot = SharedSlot(
      SharedSlot.Plan(
        "default", try PreparedSettings(settings.session.upstream), retention: Retention(), logger: logger,
        attemptLimiter: limiter), metrics: registry)
    let directory = SessionDirectory(
      configured: [.shared(slot)], logger: logger, registry: registry, attemptLimiter: limiter)
    let lifecycle = Lifecycle()
    lifecycle.enter(.serving)
    let commonState = CommonState(
      settings.api, http: settings.http, store: settings.store, lease: settings.sharedStore.lease,
      access: AccessState(
        settings.authentication, Credentials(tokens: nil, jwt: nil), openManagement: [], registry),
      sessions: directory, lifecycle: lifecycle, registry: registry, managementConnections: 1,
      openConnections: Gauge(), version: "0")
    api = API(commonState, loopIndex: 0)
    shared = SharedSessions([slot], in: directory, willBeLocal: { commonState.restoreKeys(of: $0) })
  }

  // MARK: Sessions

  /// Begins a term with the stored state.
  func becomeHolder(_ opened: OpenedJournal) {
    tenure = queue.tenures.last
    rowsRead = nil
    nonisolated(unsafe) weak let gateway = self
    let permission = WritePermission { gateway?.mayWrite ?? false }
    shared.becomeHolder(of: "default", opened, isAlone ? nil : permission)
    let session = slot.session
    session.startUpkeep(on: loop)
    nonisolated(unsafe) let peer = peer
    session.upstream.start(on: loop) { [number] in ScriptedDialer(peer, from: number, loop: $0) }
  }

  private var mayWrite: Bool { bug == .leaseNotChecked || ProcessInformation.bootTime() < deadline }

  var isReady: Bool { slot.session.upstream.snapshot().state == .ready }

  /// Called when the gateway notices that its deadline has passed. Closes the session.
  func lose() {
    guard let tenure else { return }
    self.tenure = nil
    tenure.progress.lose(from: queue.submissions.lastSubmitted + 1)
    tenure.queued.notify()
    shared.lose("default")
    tenure.progress.loseUnstored()
    tenure.queued.notify()
  }

  /// Reads all entries that the holder has stored.
  func follow(_ terms: [JournalTerm], _ entries: [LogChange], rows: Int) {
    rowsRead = rows
    var known = HolderTerms()
    for term in terms {
      let number = HolderTerm(counter: UInt32(term.term >> 32), random: UInt32(truncatingIfNeeded: term.term))
      known.append(HolderTerms.Begin(number, firstPush: term.firstPush))
    }
    shared.follow("default", .restarted(epoch: 0xABC, known))
    shared.follow("default", .entries(entries))
    shared.follow("default", .isCurrent)
  }

  // MARK: Time

  /// Runs a turn. Returns whether there is more to do at once.
  func turn() -> Bool { !isPaused && loop.turn() }

  func submitted(_ count: Int) { observer.submitted(count, by: self) }

  /// Ends the process between two instructions. Nothing that it does afterwards has an effect.
  func die() { isDead = true }

  /// Frees the objects of a dead process. They finish their work, which has no effect.
  func bury() {
    isDead = true
    isPaused = false
    loop.run { _ in
      for request in held { request.abandon() }
      slot.session.retire()
    }
    for _ in 0..<20 { _ = loop.turn() }
    loop.end()
    registry.removeAll()
  }

  // MARK: Requests

  /// Sends a request. Calls `then` with the response, or with nil if the connection breaks first.
  func send(_ request: [UInt8], then: @escaping (Received?) -> Void) -> HeldRequest? {
    loop.run { process(request, $0, then) }
  }

  private func process(_ request: [UInt8], _ loop: LoopContext, _ then: @escaping (Received?) -> Void) -> HeldRequest? {
    var connection = HTTPServerConnection()
    connection.receive(request.span)
    var exchange: Exchange?
    var response = Response()
    do {
      while let event = try connection.nextEvent() {
        switch event {
        case .head:
          exchange = api.begin(
            connection.request, on: HTTPListener(.client, reach: .loopback),
            from: ClientConnection(.ipv4(0x7F00_0001)))
        case .content: exchange?.body?.append(connection.content)
        case .end:
          guard let finished = exchange.take() else { break }
          switch api.finish(finished, at: loop.now, into: &response) {
          case .respond: then(isDead ? nil : Received(response))
          case .wait(let request):
            let held = HeldRequest(request, loop) { [unowned self] request, response in
              self.held.removeAll { $0 === request }
              then(isDead ? nil : response)
            }
            self.held.append(held)
            held.begin()
            return held.hasEnded ? nil : held
          case .stream: then(nil)
          }
          return nil
        case .trailers, .endOfInput: break
        }
      }
    } catch {
      then(nil)
    }
    return nil
  }

  /// Ends a request whose client has disconnected.
  func abandon(_ request: HeldRequest) {
    guard held.contains(where: { $0 === request }) else { return }
    loop.run { _ in request.abandon() }
  }
}

/// A held request, as on a connection of the server.
final class HeldRequest: SignalTarget, TimerTarget {
  private let request: any WaitingRequest
  private let loop: LoopContext
  private let end: (HeldRequest, Received?) -> Void
  private var registration: (notifier: Notifier, listener: Notifier.Listener)?
  private var deadline = MonotonicTime.zero
  private var timer: LoopTimer?
  private var signal: Signal?
  private(set) var hasEnded = false

  init(_ request: any WaitingRequest, _ loop: LoopContext, end: @escaping (HeldRequest, Received?) -> Void) {
    self.request = request
    self.loop = loop
    self.end = end
  }

  /// Advances the request, and once more after each registration.
  func begin() {
    guard !hasEnded else { return }
    while case .wait(let notifier, let deadline, _) = request.advance(.news, at: loop.now) {
      if notifier === registration?.notifier {
        self.deadline = deadline
        return loop.reschedule(&timer, at: deadline, self)
      }
      register(for: notifier)
    }
    finish()
  }

  private func register(for notifier: Notifier) {
    unregister()
    let signal = signal ?? loop.makeSignal(for: self)
    self.signal = signal
    let listener = Notifier.Listener(signal)
    listener.isWaiting.store(true, ordering: .sequentiallyConsistent)
    notifier.add(listener)
    registration = (notifier, listener)
  }

  private func unregister() {
    if let registration { registration.notifier.remove(registration.listener) }
    registration = nil
  }

  func signalled() { begin() }

  func timerFired(_ token: Int) {
    timer = nil
    guard !hasEnded else { return }
    guard deadline <= loop.now else { return begin() }
    _ = request.advance(.end, at: loop.now)
    finish()
  }

  private func finish() {
    leave()
    var response = Response()
    request.finish(at: loop.now, into: &response)
    end(self, Received(response))
  }

  func abandon() {
    guard !hasEnded else { return }
    leave()
    request.abandon()
    end(self, nil)
  }

  private func leave() {
    hasEnded = true
    unregister()
    loop.reschedule(&timer, at: nil, self)
    signal?.close()
    signal = nil
  }
}

/// A response, as a client receives it.
struct Received {
  let status: Int
  let body: String
  let json: [String: Any]

  init(_ response: borrowing Response) {
    if let prepared = response.prepared {
      status = Int(prepared.status.rawValue)
      let content = prepared.content
      body = content.bytes.text()
    } else {
      status = Int(response.status.rawValue)
      body = String(decoding: response.content.copyBytes(), as: UTF8.self)
    }
    json = (try? JSONSerialization.jsonObject(with: Data(body.utf8))) as? [String: Any] ?? [:]
  }

  func text(_ member: String) -> String? { json[member] as? String }

  /// The type of a problem, without `/errors/`.
  var problem: String? { text("type").map { String($0.dropFirst("/errors/".count)) } }
}
