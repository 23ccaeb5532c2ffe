import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Metrics
import Sessions

/// Responses that depend only on the route of a request.
extension API {
  func respond(
    to route: Route, as representation: Representation, for grant: Grant?, toPeer: Bool, at now: MonotonicTime,
    into response: inout Response
  ) {
    switch route {
    case .session(let session):
      respond(withStateOf: session, for: grant, at: now, toPeer: toPeer, into: &response)
    case .reload(let isRequest):
      response.begin(isRequest ? .accepted : .ok, "application/json")
      if isRequest {
        common.reload.request(into: &response.content.text)
      } else {
        common.reload.write(into: &response.content.text)
      }
    case .document:
      response.begin(.ok, representation.contentType)
      response.content.text.append(OpenAPIDocument.text)
    case .errorPage(let kind):
      response.begin(.ok, representation.contentType)
      response.fields.append("Vary: Accept\r\n" as StaticString)
      response.content.append(ByteSlice(ErrorPages.page(kind, as: representation)))
    case .live:
      response.begin(.ok, .plainText)
      response.content.text.append("ok\n" as StaticString)
    case .ready(let excludingUpstream): respondWithReadiness(excludingUpstream: excludingUpstream, into: &response)
    case .started:
      let isStarted = common.lifecycle.phase != .starting
      response.begin(isStarted ? .ok : .serviceUnavailable, .plainText)
      response.content.text.append(isStarted ? "ok\n" as StaticString : "starting\n")
    case .metrics:
      response.begin(.ok, MetricsRegistry.contentType)
      common.registry.render(into: &response.content.text)
    case .history: respondWithHistory(at: now, into: &response)
    case .status: respondWithStatus(as: representation, at: now, into: &response)
    case .options(let methods):
      response.begin(.noContent, nil)
      response.fields.appendField("Allow", methods)
    case .send, .receive, .delivery, .distantDelivery, .call, .changeSession, .putSession, .closeSession, .sessions,
      .consumer:
      preconditionFailure("these requests have more than a path")
    }
  }
}
