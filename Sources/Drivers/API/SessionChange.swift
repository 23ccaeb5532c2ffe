import ByteStreams
import HTTPCodec
import HTTPServer
import JSONCodec
import UpstreamSession

/// The body of a `PATCH /v1/session`, a JSON merge patch (RFC 7396).
enum SessionChange {
  /// Maximum size of the document, in bytes. A valid document has about 20.
  static let limit = 4_096

  /// Refuses a request by its head, before its content is read.
  static func check(_ request: borrowing HTTPRequestHead) throws(Problem) {
    if case .length(let count) = request.framing, count > limit { throw tooLarge }
    guard let value = request.fields.first(.contentType), !value.isEmpty else { return }
    guard let type = HTTPMediaType(value), type.mayBeDocument() || type.is("application", "merge-patch+json")
    else {
      throw Problem(
        .unsupportedMediaType,
        "Content-Type '\(value.excerpt())' is not supported: use application/merge-patch+json, \(HTTPMediaType.documentTypes)"
      )
    }
  }

  static func desiredState(in body: RequestBody?) throws(Problem) -> DesiredState {
    if body?.exceedsLimit == true { throw tooLarge }
    let bytes = body?.bytes ?? []
    guard UTF8StreamValidator.isValid(bytes.span) else {
      throw Problem(.invalidDocument, "the body is not JSON: it is not UTF-8")
    }
    do throws(JSONError) {
      _ = try JSONValidator.validate(bytes.span)
    } catch {
      throw Problem(.invalidDocument, "the body is not JSON: \(error)")
    }
    guard let object = JSONObject(bytes.span), object.members.count == 1, let member = object.members.first,
      JSONString.equals(bytes.span.extracting(member.name), Array("desired".utf8))
    else { throw expectation }
    let value = bytes[member.value]
    if value.elementsEqual("\"up\"".utf8) { return .up }
    if value.elementsEqual("\"down\"".utf8) { return .down }
    throw expectation
  }

  private static var tooLarge: Problem {
    Problem(.contentTooLarge, "the body is larger than \(limit) bytes, the maximum for a change of the session")
  }

  private static var expectation: Problem {
    Problem(
      .invalidDocument,
      "the body is not a valid change of the session: use {\"desired\":\"up\"} or {\"desired\":\"down\"}")
  }
}
