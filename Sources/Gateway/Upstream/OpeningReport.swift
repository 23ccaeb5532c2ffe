import ByteStreams
import UpstreamSession
import WebSocketCodec

/// Why an opening failed, as a person wants to read it. The session's rules see `failure` only.
package struct OpeningReport: Error, Sendable {
  package let failure: OpeningFailure
  /// What was wrong, and what would be right.
  package let detail: String
  /// The HTTP answer, where there was one: its fields without those that carry secrets.
  package var fields: [(name: String, value: String)] = []
  /// The beginning of the answer's body.
  package var body: [UInt8] = []

  /// Bytes of a refusal's body that are kept: an error page's title, or a JSON error.
  static let bodyLimit = 4_096

  init(_ phase: OpeningPhase, _ reason: OpeningFailure.Reason, _ detail: String) {
    failure = OpeningFailure(phase: phase, reason: reason)
    self.detail = detail
  }

  init(_ refusal: ClientHandshake.Refusal, body: [UInt8], retryAfter: TimeSpan?) {
    failure = OpeningFailure(phase: .upgrading, reason: .status(refusal.status, retryAfter: retryAfter))
    let reason = refusal.reason.isEmpty ? "" : " \(refusal.reason)"
    detail = "the upstream answered \(refusal.status)\(reason) where 101 opens a WebSocket"
    fields = refusal.fields.filter { !["set-cookie", "set-cookie2"].contains($0.name.lowercased()) }
    self.body = body
  }

  package var phase: OpeningPhase { failure.phase }

  package var status: Int? {
    if case .status(let status, retryAfter: _) = failure.reason { status } else { nil }
  }
}

/// How an opening came to its end without a connection.
enum OpeningEnd: Error {
  /// The session gave the dial up; it wants to hear nothing more of it.
  case discarded
  case failed(OpeningReport)
  case redirected(UpstreamURL)
}
