import ByteStreams
import HTTPCodec
import JSONCodec
import Metrics
import Outbox
import Reactor
import Sessions
import Upstream
import UpstreamSession

extension HTTPConnection {
  /// Ready: clients are served and the upstream is connected, or is connected to when something comes. Kubernetes takes a pod out of the service otherwise; messages
  /// posted meanwhile still wait for their time to live.
  func answerReadiness() {
    let reason: StaticString? =
      switch shared.phase {
      case .starting: "starting\n"
      case .draining: "draining\n"
      case .serving: shared.session.upstream.isAvailable ? nil : "upstream not connected\n"
      }
    answer(reason == nil ? .ok : .serviceUnavailable, "text/plain; charset=utf-8") { output in
      output.append(reason ?? "ok\n")
    }
  }

  /// `GET /v1/session`.
  func answerSession() {
    answer(.ok, "application/json") { output in
      shared.session.upstream.snapshot().write(now: worker.loop.now, into: &output)
      output.append("\n" as StaticString)
    }
  }

  /// `PATCH /v1/session`: tells the session what is wanted, and answers with its state as it is then. What follows takes its
  /// time, and `GET /v1/session` shows it.
  func change(_ wish: SessionWish) {
    do throws(ProblemError) {
      switch try wish.desired() {
      case .up: shared.session.upstream.open()
      case .down: shared.session.upstream.close()
      }
      answerSession()
    } catch {
      answer(error.problem)
    }
  }

  /// One glance for the engineer on call.
  func answerStatusPage() {
    func seconds(_ span: TimeSpan) -> String { "\(max(0, Int(span.seconds.rounded(.up)))) s" }
    let snapshot = shared.session.upstream.snapshot()
    let now = worker.loop.now
    let summary = shared.session.inbox.summary
    answer(.ok, "text/plain; charset=utf-8") { output in
      output.append("drawbridge \(DrawbridgeVersion.text)\n\n")
      output.append("session      \(snapshot.state)")
      output.append(snapshot.desired == .up ? "" : ", as an operator asked")
      if let next = snapshot.nextDial { output.append(", next attempt in \(seconds(next - now))") }
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
      output.append("polls held   \(shared.heldPolls.current)\n")
      output.append("connections  \(shared.openConnections.current)\n\n")
      output.append("/livez /readyz /startupz /metrics\n")
    }
  }
}
