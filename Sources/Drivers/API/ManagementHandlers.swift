import ByteStreams
import HTTPCodec
import HTTPServer
import Metrics
import Outbox
import Sessions
import Upstream
import UpstreamSession

/// Handlers for operators and orchestrators.
extension API {
  /// `GET /readyz`. Ready means that clients are served and at least one configured session is connected, or connects on demand and has
  /// not failed. Sessions that clients create do not count. Kubernetes sends no clients to a pod that is not ready. Messages posted in the meantime are still queued until they
  /// expire.
  func respondWithReadiness(into response: inout Response) {
    let sessions = shared.sessions.all
    let unavailable = sessions.filter { !$0.upstream.isAvailable }
    let problem: StaticString? =
      switch shared.lifecycle.phase {
      case .starting: "starting\n"
      case .draining: "draining\n"
      case .serving: unavailable.count < sessions.count || sessions.isEmpty ? nil : "upstream not connected\n"
      }
    response.begin(problem == nil ? .ok : .serviceUnavailable, .plainText)
    response.content.text.append(problem ?? "ok\n")
    guard sessions.count > 1 else { return }
    for session in unavailable { response.content.text.append("session \(session.name): upstream not connected\n") }
  }

  /// `GET /`: a summary for the engineer on call.
  func respondWithStatusPage(at now: MonotonicTime, into response: inout Response) {
    response.begin(.ok, .plainText)
    response.content.text.append("drawbridge \(shared.version)\n\n")
    for session in shared.sessions.all { writeStatus(of: session, at: now, into: &response.content.text) }
    let created = shared.sessions.created.count
    if created > 0 { response.content.text.append("created      \(created) sessions, which GET /v1/sessions lists\n") }
    response.content.text.append("polls held   \(shared.metrics.heldPolls.current)\n")
    response.content.text.append("connections  \(shared.openConnections.current)\n\n")
    response.content.text.append("/livez /readyz /startupz /metrics\n")
  }

  private func writeStatus(of session: Session, at now: MonotonicTime, into output: inout ByteQueue) {
    func seconds(_ span: TimeSpan) -> String { "\(max(0, Int(span.seconds.rounded(.up)))) s" }
    let snapshot = session.upstream.snapshot()
    let summary = session.inbox.summary
    let isOne = shared.sessions.all.count == 1
    output.append(isOne ? "session      \(snapshot.state)" : "session      \(session.name): \(snapshot.state)")
    output.append(snapshot.desired == .up ? "" : ", requested by an operator")
    if let next = snapshot.nextAttempt { output.append(", next attempt in \(seconds(next - now))") }
    output.append("\nupstream     \(snapshot.url)\n")
    if let failure = snapshot.lastFailure, let at = snapshot.status.lastFailureAt {
      output.append("last failure \(failure) (\(seconds(now - at)) ago)\n")
    }
    if let report = snapshot.status.lastReport, let status = report.status {
      output.append("last refusal \(status) while \(report.phase.state.name)\n")
      for field in report.fields { output.append("             \(field.name): \(field.value)\n") }
      if !report.body.isEmpty { output.append("             body: \(report.body)\n") }
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
