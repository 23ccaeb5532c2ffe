import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import JSONCodec
import Metrics
import Peers
import Reactor
import Sessions
import Upstream

/// The identity of this gateway among the gateways that share its sessions.
package struct GatewayIdentity: Sendable {
  let id: String
  /// The address at which the other gateways reach this gateway.
  let address: String

  package init(id: String, address: String) {
    self.id = id
    self.address = address
  }
}

/// This gateway's knowledge of a session that several gateways share. The gateway adds this part to the documents that
/// it gets from the holder.
struct SessionReplica {
  private let session: Session
  private let gateway: GatewayIdentity?
  private let store: StoreStatus

  /// Returns nil if the session is not shared.
  init?(of session: Session, _ common: CommonState) {
    guard session.placement.isShared else { return nil }
    self.session = session
    gateway = common.gateway
    store = common.store
  }

  /// The member `replica`.
  func write(into output: inout ByteQueue) {
    output.append("\"replica\":{\"gateway\":" as StaticString)
    output.append(jsonStringOrNull: gateway?.id)
    let holder = session.placement.holder
    output.append(",\"holder\":" as StaticString)
    if let holder {
      output.append("{\"gateway\":" as StaticString)
      output.append(jsonStringOrNull: holder.peer?.gateway ?? gateway?.id)
      output.append(",\"address\":" as StaticString)
      output.append(jsonStringOrNull: holder.peer?.address ?? gateway?.address)
      output.append(session.isHere ? ",\"here\":true}" as StaticString : ",\"here\":false}")
    } else {
      output.append("null" as StaticString)
    }
    output.append(",\"term\":" as StaticString)
    if let holder { output.append(decimal: holder.term) } else { output.append("null" as StaticString) }
    output.append(session.isCurrent ? ",\"current\":true" as StaticString : ",\"current\":false")
    output.append(",\"lag_seconds\":" as StaticString)
    output.append(seconds: session.lag)
    output.append(",\"store\":" as StaticString)
    store.write(showingReason: true, into: &output)
    output.append("}" as StaticString)
  }

  /// The state of a session that is not local.
  private var state: StaticString {
    if case .at = session.placement.place { "elsewhere" } else { "no-holder" }
  }

  /// Writes an element of `GET /v1/sessions` for a session that is not local. Members that only the
  /// holder knows are null.
  func writeSummary(at now: MonotonicTime, into output: inout ByteQueue) {
    output.append("{" as StaticString)
    writeOverview(at: now, into: &output)
    output.append("," as StaticString)
    write(into: &output)
    output.append("}" as StaticString)
  }

  /// Writes the body of `GET /v1/session` without the help of the holder.
  func writeDocument(at now: MonotonicTime, into output: inout ByteQueue) {
    output.append("{" as StaticString)
    writeOverview(at: now, into: &output)
    output.append(",\"store\":" as StaticString)
    store.write(showingReason: true, into: &output)
    output.append(",\"history\":[],\"creation\":" as StaticString)
    SessionSnapshot.writeCreation(of: session, now: now, into: &output)
    output.append("," as StaticString)
    write(into: &output)
    output.append("}" as StaticString)
  }

  /// Writes the members of a `session` event of a stream, for a session that is not local.
  func writeState(into output: inout ByteQueue) {
    writeBeginning(into: &output)
    output.append(",\"last_failure\":null,\"transition\":null," as StaticString)
    write(into: &output)
  }

  private func writeBeginning(into output: inout ByteQueue) {
    output.append("\"session\":" as StaticString)
    output.append(jsonString: session.name)
    output.append(",\"desired\":null,\"state\":\"" as StaticString)
    output.append(state)
    output.append("\",\"upstream\":" as StaticString)
    output.append(jsonString: session.upstream.snapshot().url)
  }

  private func writeOverview(at now: MonotonicTime, into output: inout ByteQueue) {
    writeBeginning(into: &output)
    output.append(",\"seconds_in_state\":" as StaticString)
    output.append(seconds: now - session.placement.since)
    output.append(
      ",\"failed_attempts\":null,\"next_attempt_in_seconds\":null,\"round_trip_seconds\":null" as StaticString)
    output.append(",\"last_failure\":null,\"last_failure_seconds_ago\":null,\"queue\":null," as StaticString)
    SessionSnapshot.writePushes(of: session, into: &output)
  }

  /// Writes a line for people, about a session that is not local.
  func writeLine(showingAddress showsAddress: Bool, into output: inout ByteQueue) {
    output.append("session      \(session.name): \(state)")
    if let holder = session.placement.holder, let peer = holder.peer {
      let address = showsAddress ? " at \(peer.address)" : ""
      output.append("; its holder is gateway \(peer.gateway)\(address) in term \(holder.term)")
    }
    output.append(session.isCurrent ? "; the copy is current" as StaticString : "; the copy is not current")
    if let lag = session.lag { output.append(", the newest push was \(lag.nanoseconds / 1_000_000) ms late") }
    output.append("\n" as StaticString)
  }
}

/// The client that reads the document of a session, or the gateway that has forwarded its request.
struct SessionReader {
  let grant: Grant?
  fileprivate let isGateway: Bool

  init(_ grant: Grant?) { (self.grant, isGateway) = (grant, false) }
  init(_ request: ReceivedRequest) { (grant, isGateway) = (request.grant, request.isFromPeer) }
}

/// What this gateway can show of a session.
enum ShownSession {
  /// The state of a session that is local, and the part of this gateway if gateways share the session.
  case local(SessionSnapshot, SessionReplica?)
  case remote(SessionReplica)

  /// - Parameter reader: the reader of the result. Another gateway adds its own part.
  init(_ session: Session, _ common: CommonState, to reader: SessionReader = SessionReader(nil)) {
    let replica = reader.isGateway ? nil : SessionReplica(of: session, common)
    // The snapshot is read before `isHere`: if the session is still local after that, the snapshot is its state.
    let snapshot = session.upstream.snapshot()
    if let replica, !session.isHere { self = .remote(replica) } else { self = .local(snapshot, replica) }
  }
}

extension CommonState {
  /// Writes an element of `GET /v1/sessions`.
  func writeSummary(
    of session: Session, for grant: Grant?, at now: MonotonicTime, into output: inout ByteQueue
  ) {
    switch ShownSession(session, self) {
    case .remote(let replica): replica.writeSummary(at: now, into: &output)
    case .local(let snapshot, let replica):
      snapshot.writeSummary(of: session, replica: replica, now: now, showingRefusal: grant.showsRefusals, into: &output)
    }
  }

  /// The number of configured sessions whose holder is this gateway.
  var heldSessions: Int { sessions.all.count { $0.isHere } }

  /// The sessions whose upstream is not available. Remote sessions are not considered, since another gateway has their
  /// upstream connection.
  var unavailableSessions: [Session] { sessions.all.filter { $0.isHere && !$0.upstream.isAvailable } }
}

/// A request for the document of a session, forwarded to its holder. This gateway adds its own part.
final class HeldDocumentRequest: WaitingRequest {
  /// How long a client that reads the state of a session waits for the holder. The holder does not respond in time if
  /// it is stopped, or if packets are lost. In that case, the client gets what this gateway knows. The client gets the
  /// same at once if no holder is known, or if the holder refuses or loses the connection
  /// (`ForwardingRepetition.optional`). The time is longer than a busy holder takes, and shorter than the timeouts of
  /// probes and dashboards, which are a second or more.
  private static var patience: TimeSpan { .milliseconds(800) }

  private let api: API
  private let session: Session
  private let exchange: ForwardedExchange
  /// Whether the request only reads. If false, only a holder can determine the outcome.
  private let isRead: Bool
  private let deadline: MonotonicTime

  init(_ api: API, _ session: Session, _ exchange: ForwardedExchange, isRead: Bool, at now: MonotonicTime) {
    self.api = api
    self.session = session
    self.exchange = exchange
    self.isRead = isRead
    deadline = isRead ? now + Self.patience : exchange.deadline + .seconds(1)
  }

  var heldCount: Gauge? { nil }
  var effect: HeldEffect { isRead || !exchange.mayHaveBeenExecuted ? .none : .change }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    // A request that changes the session may have an effect at the holder, so it waits for the outcome even at a drain.
    exchange.outcome == nil ? .wait(exchange.notifier, until: deadline, endsAtDrain: isRead) : .ready
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    let outcome = exchange.outcome ?? exchange.failure
    exchange.cancel()
    guard case .response(let status, let fields, let content) = outcome else {
      guard isRead else { return api.write(outcome, into: &response) }
      return api.respond(withStateOf: session, for: SessionReader(nil), at: now, into: &response)
    }
    guard status == .ok || status == .created, let replica = SessionReplica(of: session, api.common),
      content.bytes.text().hasSuffix("}\n")
    else { return api.write(outcome, into: &response) }
    response.status = status
    response.fields.append(fields)
    response.content.append(ByteSlice(content, range: 0..<(content.count - 2)))
    response.content.text.append("," as StaticString)
    replica.write(into: &response.content.text)
    response.content.text.append("}\n" as StaticString)
  }

  func abandon() { exchange.cancel() }
}
