import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import Host
import Peers
import Reactor
import Sessions

/// The gateway that executes a request, as far as its head shows.
enum Executor {
  /// This gateway, for one of its clients.
  case thisGateway
  /// This gateway. If it loses the session while the request waits, the request continues at the next holder.
  indirect case thisGatewayFirst(RequestToForward)
  /// This gateway, for another gateway, which has forwarded the request. `movesOn`: whether that gateway can send the
  /// request to the next holder while the request waits here.
  case thisGatewayForPeer(movesOn: Bool)
  /// The holder of the session.
  indirect case holder(RequestToForward)
  /// Another gateway has forwarded the request, and the session is not local.
  case unknown

  var isThisGateway: Bool {
    switch self {
    case .thisGateway, .thisGatewayFirst, .thisGatewayForPeer: true
    case .holder, .unknown: false
    }
  }

  /// Whether the request is executed by another gateway, and counted here as a request that may wait.
  var mayWaitElsewhere: Bool { if case .holder(let request) = self { request.mayWait } else { false } }
}

/// The stage between a route and its endpoint: it decides which gateway executes a request, and what becomes of the
/// response if this gateway has lost the session meanwhile. No endpoint knows which gateway is the holder of a session.
/// With one gateway, every request is executed here.
///
/// The stage has one rule for each part of a request:
/// - `Endpoint.execute` and `HolderRequest.conclude` throw a problem only if the request may be executed again. If the
///   session was lost, the stage drops the problem, and the request can be executed at the next holder. If the session
///   was closed, the response reports this instead of the problem.
/// - A response without a wait is dropped if the session was lost, unless it stays true (`HolderRules.staysTrue`).
/// - A request that waits says what becomes of it (`HolderRequest.afterLoss`).
extension API {
  // MARK: The head

  /// Decides which gateway executes a request.
  func executor(
    of request: ReceivedRequest, _ head: borrowing HTTPRequestHead, _ route: Route, from origin: ClientOrigin,
    _ body: inout RequestBody?
  ) throws(Problem) -> Executor {
    guard let rules = route.holderRules, let session = request.target.session else { return .thisGateway }
    if session.isHere {
      return request.isFromPeer
        ? .thisGatewayForPeer(movesOn: rules.repetition != .harmful || rules.movesOn) : .thisGateway
    }
    if request.isFromPeer { return .unknown }
    if let forwarded = forwarded(head, rules, request, from: origin, &body) { return .holder(forwarded) }
    if rules.isExclusive, session.hasLeft { throw Self.holderUnavailable }
    return .thisGateway
  }

  /// The executor of a request that may wait here; nil if the request cannot continue at the next holder.
  func movableExecutor(
    of request: ReceivedRequest, _ head: borrowing HTTPRequestHead, _ route: Route, from origin: ClientOrigin
  ) -> Executor? {
    guard let rules = route.holderRules, rules.movesOn else { return nil }
    return requestToForward(head, rules, request, from: origin).map { .thisGatewayFirst($0) }
  }

  // MARK: The response

  func execute(
    _ pending: Pending, by executor: Executor, _ body: RequestBody?, at now: MonotonicTime,
    into response: inout Response
  ) -> Outcome {
    switch executor {
    case .thisGateway:
      if let outcome = execute(pending, body, at: now, into: &response) { return outcome }
      respond(with: Self.holderUnavailable, into: &response)
    case .thisGatewayFirst(let forward):
      // This gateway may have lost the session since the head was read.
      guard forward.session.isHere, let outcome = execute(pending, body, at: now, into: &response) else {
        return send(forward, for: pending, body, at: now, into: &response)
      }
      guard case .wait(let request as any HolderRequest) = outcome else { return outcome }
      let message = message(of: forward, body, at: now, &response)
      return .wait(HeldMovableRequest(request, forward.session, message, self))
    case .thisGatewayForPeer(let movesOn):
      let session = pending.request.session
      if session.isHere, let outcome = execute(pending, body, at: now, into: &response) {
        guard movesOn, case .wait(let request) = outcome else { return outcome }
        return .wait(HeldPeerRequest(request, session, self))
      }
      misdirect(into: &response)
    case .holder(let request): return send(request, for: pending, body, at: now, into: &response)
    case .unknown: misdirect(into: &response)
    }
    return .respond
  }

  private func send(
    _ request: RequestToForward, for pending: Pending, _ body: RequestBody?, at now: MonotonicTime,
    into response: inout Response
  ) -> Outcome {
    pending.request.context?.isSentToHolder = true
    do throws(Problem) {
      return try forward(request, body, at: now, into: &response)
    } catch {
      respond(with: error, into: &response)
      return .respond
    }
  }

  /// Executes a request at this gateway. If only the session's holder can execute the request, verifies both before and
  /// after the execution that this gateway is the holder, and that the session is open: the process may have been
  /// stopped during the execution, and may then have read an outdated state.
  ///
  /// Returns nil if this gateway has lost the session, and the request can be repeated at the next holder. `response`
  /// is then empty.
  private func execute(
    _ pending: Pending, _ body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) -> Outcome? {
    guard case .holder(let rules) = table.routes[pending.request.target.route].place, rules.isExclusive else {
      do throws(Problem) {
        return try run(pending, body, at: now, into: &response)
      } catch {
        respond(with: error, into: &response)
        return .respond
      }
    }
    let session = pending.request.session
    if session.hasLeft { return nil }
    do throws(Problem) {
      // If the session is closed before the body of a request has arrived, the request gets 410 at every gateway.
      if session.inbox.isClosed { throw .closed(session) }
      let outcome = try run(pending, body, at: now, into: &response)
      guard case .respond = outcome, session.hasLeft, !rules.staysTrue else { return outcome }
      response.reset()
      return nil
    } catch {
      if session.hasLeft { return nil }
      respond(with: session.cause(of: error), into: &response)
      return .respond
    }
  }
}

extension Session {
  /// The problem that the response reports. If the session is closed, the response reports this instead of `problem`,
  /// since a closed session refuses every request.
  func cause(of problem: Problem) -> Problem { inbox.isClosed ? .closed(self) : problem }

  /// Writes a response that shows what only the holder of the session knows. If the session was lost meanwhile, `write`
  /// is called again with `false`, and must leave that out.
  func writeAsHolder(into response: inout Response, _ write: (_ isHolder: Bool, inout Response) -> Void) {
    write(true, &response)
    guard hasLeft else { return }
    response.reset()
    write(false, &response)
  }
}
