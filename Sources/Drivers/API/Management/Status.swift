import ByteStreams
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

/// `GET /`: a page for a browser, the figures of the page, or a summary for a terminal.
enum ReadStatus: ImmediateEndpoint {
  static var route: Route { .management("/", formats: [.text, .html, .json], allowsLinks: true) }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, request.representation.contentType)
    response.fields.append("Vary: Accept\r\n" as StaticString)
    switch request.representation {
    case .html:
      response.fields.append(StatusPage.fields)
      response.content.append(ByteSlice(StatusPage.content))
    case .json: turn.api.common.writeFigures(at: turn.now, into: &response.content.text)
    default: turn.api.common.writeSummary(at: turn.now, into: &response.content.text)
    }
  }
}

extension CommonState {
  /// Writes the figures that the page shows of the whole gateway. They must reveal nothing about a single session,
  /// since this path needs no credentials.
  fileprivate func writeFigures(at now: MonotonicTime, into output: inout ByteQueue) {
    let sums = sessions.sums
    func write(_ name: StaticString, _ value: Int) {
      output.append(name)
      output.append(decimal: value)
    }
    output.append("{\"version\":")
    output.append(jsonString: version)
    output.append(",\"phase\":\"")
    output.append(lifecycle.phase.name)
    write("\",\"instance\":", Int(instance))
    output.append(",\"seconds\":")
    output.append(seconds: now - start)
    write(",\"sessions\":{\"configured\":", sessions.all.count)
    write(",\"created\":", sessions.created.count)
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
    write(",\"calls\":", sessions.callCount)
    write(",\"connections\":", openConnections.current)
    output.append("},\"gateway\":")
    if let gateway = gateway {
      output.append("{\"id\":" as StaticString)
      output.append(jsonString: gateway.id)
      write(",\"held_sessions\":", heldSessions)
      output.append("}" as StaticString)
    } else {
      output.append("null" as StaticString)
    }
    output.append(",\"store\":")
    store.write(showingReason: access.isOpen, into: &output)
    output.append(",\"tokens\":")
    output.append(access.acceptsTokens ? "true" : "false" as StaticString)
    output.append(",\"stream_heartbeat_seconds\":")
    output.append(seconds: settings.delivery.streamHeartbeat)
    output.append(",\"payloads\":")
    output.append(settings.showsPayloads ? "true" : "false" as StaticString)
    output.append("}\n")
  }

  fileprivate func writeSummary(at now: MonotonicTime, into output: inout ByteQueue) {
    output.append("drawbridge \(version)\n\n")
    if let gateway = gateway { output.append("gateway      \(gateway.id)\n\n") }
    for session in sessions.all {
      switch ShownSession(session, self) {
      case .remote(let replica): replica.writeLine(showingAddress: access.isOpen, into: &output)
      case .local(let snapshot, _): write(snapshot, of: session, at: now, into: &output)
      }
    }
    let created = sessions.created.count
    if created > 0 { output.append("created      \(created) sessions, which GET /v1/sessions lists\n") }
    store.writeLine(showingReason: access.isOpen, into: &output)
    output.append("polls held   \(metrics.heldPolls.current)\n")
    output.append("connections  \(openConnections.current)\n\n")
    output.append("/livez /readyz /startupz /metrics\n")
  }

  private func write(
    _ snapshot: SessionSnapshot, of session: Session, at now: MonotonicTime, into output: inout ByteQueue
  ) {
    func seconds(_ span: TimeSpan) -> String { "\(max(0, Int(span.seconds.rounded(.up)))) s" }
    let summary = session.inbox.summary
    let isOne = sessions.all.count == 1
    output.append(isOne ? "session      \(snapshot.state)" : "session      \(session.name): \(snapshot.state)")
    output.append(snapshot.desired == .up ? "" : ", requested by an operator")
    if let next = snapshot.nextAttempt { output.append(", next attempt in \(seconds(next - now))") }
    output.append("\n")
    // This path never needs credentials. So details of the upstream are shown only if the other paths need no
    // credentials either.
    if access.isOpen {
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
