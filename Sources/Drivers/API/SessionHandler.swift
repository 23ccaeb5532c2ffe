import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import JSONCodec
import Sessions
import Upstream
import UpstreamSession

extension API {
  /// `GET /v1/session`.
  func respond(withStateOf session: Session, at now: MonotonicTime, into response: inout Response) {
    response.begin(.ok, "application/json")
    session.upstream.snapshot().write(name: session.name, now: now, into: &response.content.text)
    response.content.text.append("\n" as StaticString)
  }

  /// `PATCH /v1/session`: requests the desired state and responds with the current one. The change takes time, and
  /// `GET /v1/session` reports it.
  func change(
    _ session: Session, as body: RequestBody?, at now: MonotonicTime, into response: inout Response
  ) throws(ProblemError) {
    switch try SessionChange.desiredState(in: body) {
    case .up: session.upstream.open()
    case .down: session.upstream.close()
    }
    respond(withStateOf: session, at: now, into: &response)
  }

  /// `GET /v1/sessions`: the sessions that the grant allows, in the order of the configuration.
  func listSessions(for grant: Grant?, into response: inout Response) {
    response.begin(.ok, "application/json")
    response.content.text.append("{\"sessions\":[" as StaticString)
    var isFirst = true
    for session in shared.sessions.all where grant?.allows(session) ?? false {
      if !isFirst { response.content.text.append("," as StaticString) }
      isFirst = false
      session.upstream.snapshot().writeSummary(name: session.name, into: &response.content.text)
    }
    response.content.text.append("]}\n" as StaticString)
  }
}
