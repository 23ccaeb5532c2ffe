import Access
import ByteStreams
import HTTPCodec
import HTTPServer

/// `GET /v1/reload`: the outcome of the last reload. A reload concerns all sessions.
enum ReadReload: ImmediateEndpoint {
  static var route: Route {
    Route(method: .get, path: "/v1/reload", scope: .admin, needsAllSessions: true, isCompressed: true)
  }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, "application/json")
    turn.api.common.reload.write(into: &response.content.text)
  }
}

/// `POST /v1/reload`
enum StartReload: ImmediateEndpoint {
  static var route: Route {
    Route(method: .post, path: "/v1/reload", scope: .admin, needsAllSessions: true, isCompressed: true)
  }

  static func respond(
    _ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response
  ) throws(Problem) {
    // The process will end with its present configuration.
    guard turn.api.common.lifecycle.phase != .draining else {
      throw Problem(
        .shuttingDown, "the gateway is shutting down, and does not reload its configuration: the next process reads it")
    }
    response.begin(.accepted, "application/json")
    turn.api.common.reload.request(into: &response.content.text)
  }
}
