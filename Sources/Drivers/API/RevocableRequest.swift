import Access
import ByteStreams
import HTTPServer
import Metrics
import Reactor

/// A held request of a client whose credentials may be removed meanwhile. If they are, it ends with 401 and gets no data: at the next
/// notification, or at its deadline.
final class RevocableRequest: WaitingRequest {
  private let request: any WaitingRequest
  private let grant: Grant
  private let api: API

  init(_ request: any WaitingRequest, _ grant: Grant, _ api: API) {
    self.request = request
    self.grant = grant
    self.api = api
  }

  var heldCount: Gauge? { request.heldCount }
  var notifier: Notifier { request.notifier }
  var deadline: MonotonicTime { request.deadline }
  var hasNewData: Bool { grant.isRevoked || request.hasNewData }
  var sharesNotifier: Bool { request.sharesNotifier }
  var endsAtDrain: Bool { request.endsAtDrain }

  func finish(at now: MonotonicTime, into response: inout Response) {
    guard grant.isRevoked else { return request.finish(at: now, into: &response) }
    request.abandon()
    api.respond(
      with: Problem(
        .unauthorized,
        detail:
          "the credentials were removed, or what they allow was changed, while this request was held: repeat it with valid ones, but a message or call that was accepted only if it does no harm twice",
        challenge: .invalidToken("the credentials are no longer valid")), into: &response)
  }

  func abandon() { request.abandon() }
}
