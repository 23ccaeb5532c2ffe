import ByteStreams
import Dialing
import HTTPCodec
import UpstreamSession
import WebSocketCodec

/// Why an attempt failed, as a report for operators. The session machine uses only `failure`.
package struct AttemptReport: Error, Sendable {
  package let failure: AttemptFailure
  /// What was wrong, the value that was wrong, and the accepted values.
  private var text: ReportText
  package var detail: String { text.description }
  /// The status code of the HTTP response from the upstream or the proxy; nil if there was none.
  package private(set) var status: Int?
  /// The header fields of the response with `status`, except `Set-Cookie`. The header fields and `body` are for
  /// operators only: the API returns neither.
  package private(set) var fields: [(name: String, value: String)] = []
  /// The beginning of the body of the response with `status`.
  package var body = ""
  /// The address that the rules of a profile refuse. It is for the log only: clients of a profile may choose host
  /// names, and must not learn the addresses of these names.
  private(set) var refusedAddress: String?

  init(_ phase: AttemptPhase, _ reason: AttemptFailure.Reason, _ text: ReportText) {
    failure = AttemptFailure(phase: phase, reason: reason)
    self.text = text
  }

  init(_ refusal: HTTPRefusal, body: String, retryAfter: TimeSpan?, hint: String) {
    failure = AttemptFailure(phase: .upgrading, reason: .status(refusal.status, retryAfter: retryAfter))
    text = "the upstream responded with \(refusal.statusText) instead of 101 Switching Protocols\(hint)"
    self.body = body
    addResponse(refusal)
  }

  /// This report without the secrets that the attempt sent, since an error page may repeat them.
  func masked(by mask: SecretMask) -> AttemptReport {
    var report = self
    report.text = text.mappingQuotes { mask.applied(to: $0) }
    report.fields = fields.map { (mask.applied(to: $0.name), mask.applied(to: $0.value)) }
    report.body = mask.applied(to: body, isCut: true)
    return report
  }

  package var phase: AttemptPhase { failure.phase }

  /// Adds the status and header fields of the HTTP response.
  mutating func addResponse(_ response: HTTPRefusal) {
    status = response.status
    fields = response.fields.filter { !["set-cookie", "set-cookie2"].contains($0.name.lowercased()) }
  }
}

/// Why an attempt ended without a connection.
enum AttemptError: Error {
  /// The owner has cancelled the attempt.
  case cancelled
  case failed(AttemptReport)
  case redirected(WebSocketURL)

  /// A file or credential that the attempt needs could not be read.
  static func preparationFailed(_ detail: String) -> AttemptError {
    .failed(AttemptReport(.resolving, .preparation, ReportText(detail)))
  }

  init(_ error: DialError) {
    switch error {
    case .cancelled: self = .cancelled
    case .failed(let failure): self = .failed(AttemptReport(failure))
    }
  }
}

extension AttemptPhase {
  init(_ phase: DialPhase) {
    switch phase {
    case .resolving: self = .resolving
    case .connecting: self = .connecting
    case .proxying: self = .proxying
    case .securing: self = .securing
    }
  }
}

extension AttemptReport {
  fileprivate init(_ failure: DialFailure) {
    let phase = AttemptPhase(failure.phase)
    switch failure.reason {
    case .nameNotResolved: self.init(phase, .nameNotResolved, failure.report)
    case .notAllowed: self.init(phase, .notAllowed, failure.report)
    case .noRoute: self.init(phase, .noRoute, failure.report)
    case .network: self.init(phase, .network, failure.report)
    case .tls(let error): self.init(phase, .tls, "\(failure.report)\(error.hint)")
    case .proxy: self.init(phase, .proxy, failure.report)
    case .proxyDenied: self.init(phase, .proxyDenied, failure.report)
    case .preparation: self.init(phase, .preparation, failure.report)
    }
    refusedAddress = failure.refusedAddress
    if let refusal = failure.refusal {
      addResponse(refusal.head)
      body = refusal.body
    }
  }
}
