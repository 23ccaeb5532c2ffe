import ByteStreams
import HTTPCodec
import HTTPServer

/// `GET /openapi.yaml`
enum ReadContract: ImmediateEndpoint {
  static var route: Route {
    Route(method: .get, path: "/openapi.yaml", listeners: .clients, scope: nil, formats: .yaml, isCompressed: true)
  }

  static func respond(_ input: Void, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, request.representation.contentType)
    response.content.text.append(OpenAPIDocument.text)
  }
}

/// `GET /errors/{type}`. All listeners have these pages, since the `type` of a problem is relative to the listener that
/// has sent the problem.
enum ReadErrorPage: ImmediateEndpoint {
  static var route: Route {
    Route(method: .get, path: "/errors/{type}", scope: nil, formats: [.text, .html], isCompressed: true)
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ type: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> Problem.Kind {
    guard let kind = Problem.Kind(type) else { preconditionFailure("the router has not validated the path") }
    return kind
  }

  static func respond(_ kind: Problem.Kind, to request: ReceivedRequest, _ turn: Turn, into response: inout Response) {
    response.begin(.ok, request.representation.contentType)
    response.fields.append("Vary: Accept\r\n" as StaticString)
    response.content.append(ByteSlice(ErrorPages.page(kind, as: request.representation)))
  }
}
