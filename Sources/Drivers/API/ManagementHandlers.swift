import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer
import Inbox
import JSONCodec
import Journal
import Metrics
import Outbox
import Sessions
import Upstream
import UpstreamSession

/// Handlers for operators and orchestrators.
extension API {
  /// `GET /readyz`. Ready means that clients are served and at least one configured session is connected, or connects
  /// on demand and has not failed. Sessions that clients have created are not considered.
  ///
  /// With `exclude=upstream`, the upstream is not considered, since messages are queued while it is down. This is for a
  /// load balancer in front of several gateways with the same upstream. Without the parameter, none of these gateways
  /// would be ready while the upstream is down.
  func respondWithReadiness(excludingUpstream: Bool, into response: inout Response) {
    let sessions = common.sessions.all
    // Remote sessions are not considered, since another gateway has their upstream connection.
    let unavailable = sessions.filter { $0.isHere && !$0.upstream.isAvailable }
    let store = common.store
    let redisProblem = common.settings.store.engine == .redis ? store.redisProblem : nil
    let problem: StaticString? =
      switch common.lifecycle.phase {
      case .starting: "starting"
      case .draining: "draining"
      case .serving where redisProblem != nil: redisProblem
      case .serving where store.peerProblem != nil: store.peerProblem
      case .serving:
        excludingUpstream || unavailable.count < sessions.count || sessions.isEmpty ? nil : "upstream not connected"
      }
    response.begin(problem == nil ? .ok : .serviceUnavailable, .plainText)
    response.content.text.append(problem ?? "ok")
    response.content.text.append("\n" as StaticString)
    if redisProblem == nil, store.hasFailed {
      response.content.text.append("the store does not work: messages are refused, and pushes are not stored\n")
    }
    store.writeOtherUpstream(showingHosts: common.access.isOpen, into: &response.content.text)
    guard sessions.count > 1 else { return }
    for session in unavailable { response.content.text.append("session \(session.name): upstream not connected\n") }
  }

  /// `GET /`: a page for a browser, the figures of the page, or a summary for a terminal.
  func respondWithStatus(as representation: Representation, at now: MonotonicTime, into response: inout Response) {
    response.begin(.ok, representation.contentType)
    response.fields.append("Vary: Accept\r\n" as StaticString)
    switch representation {
    case .html:
      response.fields.append(StatusPage.fields)
      response.content.append(ByteSlice(StatusPage.content))
    case .json: writeFigures(at: now, into: &response.content.text)
    default: writeSummary(at: now, into: &response)
    }
  }

  /// Writes the figures that the page shows of the whole gateway. They reveal nothing about a single session, since
  /// this path needs no credentials.
  private func writeFigures(at now: MonotonicTime, into output: inout ByteQueue) {
    let sums = common.sessions.sums
    let metrics = common.metrics
    func write(_ name: StaticString, _ value: Int) {
      output.append(name)
      output.append(decimal: value)
    }
    output.append("{\"version\":")
    output.append(jsonString: common.version)
    output.append(",\"phase\":\"")
    output.append(common.lifecycle.phase.name)
    write("\",\"instance\":", Int(common.instance))
    output.append(",\"seconds\":")
    output.append(seconds: now - common.start)
    write(",\"sessions\":{\"configured\":", common.sessions.all.count)
    write(",\"created\":", common.sessions.created.count)
    write(",\"ready\":", sums.ready)
    output.append("},\"messages\":{\"received\":")
    output.append(decimal: sums.pushes)
    output.append(",\"accepted\":")
    output.append(decimal: metrics.acceptedMessages.total)
    output.append(",\"refused\":")
    output.append(decimal: metrics.refusedMessages.total)
    output.append(",\"delivered\":")
    output.append(decimal: metrics.deliveredMessages.total)
    write(",\"queued\":", sums.queuedMessages)
    write(",\"retained\":", sums.retainedMessages)
    write(",\"retained_bytes\":", sums.retainedBytes)
    write("},\"clients\":{\"polls\":", metrics.heldPolls.current)
    write(",\"receives\":", metrics.heldReceives.current)
    write(",\"streams\":", metrics.openStreams.current)
    write(",\"calls\":", common.sessions.callCount)
    write(",\"connections\":", common.openConnections.current)
    output.append("},\"gateway\":")
    if let gateway = common.gateway {
      output.append("{\"id\":" as StaticString)
      output.append(jsonString: gateway.id)
      write(",\"held_sessions\":", common.sessions.all.count { $0.isHere })
      output.append("}" as StaticString)
    } else {
      output.append("null" as StaticString)
    }
    output.append(",\"store\":")
    common.store.write(showingReason: common.access.isOpen, into: &output)
    output.append(",\"tokens\":")
    output.append(common.settings.authentication.acceptsTokens ? "true" : "false" as StaticString)
    output.append(",\"stream_heartbeat_seconds\":")
    output.append(seconds: common.settings.delivery.streamHeartbeat)
    output.append(",\"payloads\":")
    output.append(common.settings.status.payloads ? "true" : "false" as StaticString)
    output.append("}\n")
  }

  private func writeSummary(at now: MonotonicTime, into response: inout Response) {
    response.content.text.append("drawbridge \(common.version)\n\n")
    if let gateway = common.gateway { response.content.text.append("gateway      \(gateway.id)\n\n") }
    for session in common.sessions.all {
      if let replica = SessionReplica(of: session, common), !session.isHere {
        replica.writeLine(showingAddress: common.access.isOpen, into: &response.content.text)
      } else {
        writeStatus(of: session, at: now, into: &response.content.text)
      }
    }
    let created = common.sessions.created.count
    if created > 0 { response.content.text.append("created      \(created) sessions, which GET /v1/sessions lists\n") }
    common.store.writeLine(showingReason: common.access.isOpen, into: &response.content.text)
    response.content.text.append("polls held   \(common.metrics.heldPolls.current)\n")
    response.content.text.append("connections  \(common.openConnections.current)\n\n")
    response.content.text.append("/livez /readyz /startupz /metrics\n")
  }

  private func writeStatus(of session: Session, at now: MonotonicTime, into output: inout ByteQueue) {
    func seconds(_ span: TimeSpan) -> String { "\(max(0, Int(span.seconds.rounded(.up)))) s" }
    let snapshot = session.upstream.snapshot()
    let summary = session.inbox.summary
    let isOne = common.sessions.all.count == 1
    output.append(isOne ? "session      \(snapshot.state)" : "session      \(session.name): \(snapshot.state)")
    output.append(snapshot.desired == .up ? "" : ", requested by an operator")
    if let next = snapshot.nextAttempt { output.append(", next attempt in \(seconds(next - now))") }
    output.append("\n")
    // This path never needs credentials. So details of the upstream are shown only if the other paths need no
    // credentials either.
    if common.access.isOpen {
      output.append("upstream     \(snapshot.url)\n")
      if let failure = snapshot.lastFailure, let at = snapshot.status.lastFailureAt {
        output.append("last failure \(failure) (\(seconds(now - at)) ago)\n")
      }
      if let report = snapshot.status.lastReport, let status = report.status {
        output.append("last refusal \(status) while \(report.phase.state.name)\n")
        for field in report.fields { output.append("             \(field.name): \(field.value)\n") }
        if !report.body.isEmpty { output.append("             body: \(report.body)\n") }
      }
    }
    output.append("queue        \(snapshot.queuedMessages) messages, \(snapshot.queuedBytes) bytes\n")
    output.append("sent         ")
    for (index, entry) in snapshot.ledger.enumerated() where entry.state != .queued {
      output.append(index > 1 ? ", \(entry.count) \(entry.state.name)" : "\(entry.count) \(entry.state.name)")
    }
    output.append("; \(snapshot.unconfirmedMessages) not confirmed yet, \(snapshot.redeliveries) sent again\n")
    output.append("buffer       \(summary.count) messages, \(summary.bytes) bytes\n")
    if !isOne { output.append("\n") }
  }
}
