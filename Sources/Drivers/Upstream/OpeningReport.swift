import ByteStreams
import HTTPCodec
import UpstreamSession
import WebSocketCodec

/// Why an opening failed, as a person wants to read it. The session's rules see `failure` only.
package struct OpeningReport: Error, Sendable {
  package let failure: OpeningFailure
  /// What was wrong, and what would be right.
  package private(set) var detail: String
  /// The status of the HTTP answer, where there was one: the upstream's, or the proxy's.
  package private(set) var status: Int?
  /// Its fields without those that carry secrets. Like the body, for operators: the API shows neither.
  package private(set) var fields: [(name: String, value: String)] = []
  /// The beginning of the response's body.
  package var body = ""

  init(_ phase: OpeningPhase, _ reason: OpeningFailure.Reason, _ detail: String) {
    failure = OpeningFailure(phase: phase, reason: reason)
    self.detail = detail
  }

  init(_ refusal: HTTPRefusal, body: String, retryAfter: TimeSpan?, hint: String) {
    failure = OpeningFailure(phase: .upgrading, reason: .status(refusal.status, retryAfter: retryAfter))
    detail = "the upstream answered \(refusal.statusText) where 101 opens a WebSocket" + hint
    self.body = body
    tell(of: refusal)
  }

  /// The same without the secrets that the attempt sent: an error page may repeat them.
  func masked(by mask: SecretMask) -> OpeningReport {
    var report = self
    report.detail = mask.applied(to: detail)
    report.fields = fields.map { (mask.applied(to: $0.name), mask.applied(to: $0.value)) }
    report.body = mask.applied(to: body, isCut: true)
    return report
  }

  package var phase: OpeningPhase { failure.phase }

  /// Adds the head of the answer that all this is about.
  mutating func tell(of answer: HTTPRefusal) {
    status = answer.status
    fields = answer.fields.filter { !["set-cookie", "set-cookie2"].contains($0.name.lowercased()) }
  }
}

/// How an opening came to its end without a connection.
enum OpeningEnd: Error {
  /// The session gave the dial up; it wants to hear nothing more of it.
  case discarded
  case failed(OpeningReport)
  case redirected(UpstreamURL)

  /// Something that the attempt needs could not be read.
  static func unprepared(_ detail: String) -> OpeningEnd { .failed(OpeningReport(.resolving, .preparation, detail)) }
}
