import Access
import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer
import Metrics
import Reactor

/// What a request has besides its content, until its response: the web page that sent it, and the limits that count it. Exists only for
/// requests that have one of them.
final class RequestContext {
  /// The allowed origin of the page.
  let origin: CrossOrigin.Origin?
  /// Whether the page may use the cookie.
  let allowsCredentials: Bool
  var isPreflight = false
  var client: RateLimiter.Client?
  /// The origin of the client if another gateway has it: that one counts the requests, and this one the messages. Else nil.
  var forwardedOrigin: ClientOrigin?
  var isForwarded: Bool { forwardedOrigin != nil }
  /// Whether a holder counts the messages, and says what is left of that limit if it refuses them.
  var isSentToHolder = false
  fileprivate var hold: RateLimiter.Hold?
  /// Whether it is counted in `heldManagementRequests`.
  fileprivate var holdsManagement = false

  init(_ origin: CrossOrigin.Origin?, allowsCredentials: Bool, _ client: RateLimiter.Client?) {
    self.origin = origin
    self.allowsCredentials = allowsCredentials
    self.client = client
  }
}

extension API {
  /// Whether the page that sends the request may use the cookie, which is for GET and HEAD only.
  func allowsCredentials(_ request: borrowing HTTPRequestHead) -> Bool {
    // Before a GET, a browser may ask by OPTIONS.
    !shared.access.isOpen && (request.method == .get || request.method == .head || request.method == .options)
  }

  /// Throws 429 if the client of the request may send no message now.
  func checkMessages(in context: RequestContext?) throws(ProblemError) {
    // A repetition by the other gateway may be of a request that is accepted already.
    guard let context, !context.isForwarded, let client = context.client else { return }
    try shared.limiter.checkMessages(of: client, at: ProcessInformation.monotonicTime())
  }

  /// Counts the messages of a request, or throws 429.
  func admitMessages(_ count: Int, in context: RequestContext?, at now: MonotonicTime) throws(ProblemError) {
    guard let client = context?.client else { return }
    try shared.limiter.admitMessages(count, of: client, at: now)
  }

  /// Counts a request that may wait, until `release`. Throws 429 if too many are in progress.
  func hold(_ context: RequestContext) throws(ProblemError) {
    guard let client = context.client else { return }
    context.hold = try shared.limiter.hold(for: client, at: ProcessInformation.monotonicTime())
  }

  /// Counts a request on a management listener that may wait, until `release`. Throws 429 if these would leave too few connections for
  /// probes.
  func holdManagement(_ context: inout RequestContext?) throws(ProblemError) {
    let connections = shared.managementConnections
    guard heldManagementRequests < connections / 2 else {
      throw ProblemError(
        Problem(
          .tooManyRequests,
          detail:
            "at most half of the \(connections) connections of the management listener (http.management_connections) may wait or be streams, and the others are for probes: use a listener for clients",
          retryAfter: 1))
    }
    if context == nil { context = RequestContext(nil, allowsCredentials: false, nil) }
    context?.holdsManagement = true
    heldManagementRequests += 1
  }

  func release(_ context: RequestContext) {
    if context.holdsManagement {
      context.holdsManagement = false
      heldManagementRequests -= 1
    }
    if let hold = context.hold.take() { shared.limiter.release(hold) }
  }

  /// Adds to a response, or to the one that follows a wait, what the context of its request demands. A wait also ends with its credentials.
  ///
  /// - Parameter grant: nil if credentials are not checked.
  func accompany(
    _ outcome: Outcome, for grant: Grant?, in context: RequestContext?, at now: MonotonicTime,
    into response: inout Response
  ) -> Outcome {
    if case .wait(let request) = outcome {
      return grant == nil && context == nil ? outcome : .wait(AccompaniedRequest(request, grant, context, self))
    }
    guard let context else { return outcome }
    if case .stream(let source) = outcome {
      writeFields(of: context, at: now, into: &response)
      return context.hold == nil && !context.holdsManagement
        ? outcome : .stream(AccompaniedSource(source, context, self))
    }
    release(context)
    writeFields(of: context, at: now, into: &response)
    return outcome
  }

  fileprivate func writeFields(of context: RequestContext, at now: MonotonicTime, into response: inout Response) {
    // A preflight's response has them already.
    if let origin = context.origin, !context.isPreflight {
      shared.browsers.crossOrigin.writeFields(
        for: origin, allowsCredentials: context.allowsCredentials, into: &response.additionalFields)
    }
    guard let client = context.client else { return }
    let isRefused = response.prepared == nil && response.status == .tooManyRequests
    let isOfHolder = isRefused && context.isSentToHolder
    if context.isForwarded ? isRefused : !isOfHolder {
      shared.limiter.writeFields(
        of: client, all: isRefused, only: context.isForwarded ? .messages : nil, at: now,
        into: &response.additionalFields)
    }
  }
}

/// A held request with a context, or with credentials that may be removed meanwhile. If they are, it gets no data. At the next notification, or at
/// its deadline, it ends: with 401 if it has changed nothing, else with a problem that says so. One whose response only says what it has
/// changed does not end early.
private final class AccompaniedRequest: WaitingRequest {
  private let request: any WaitingRequest
  private let grant: Grant?
  private let context: RequestContext?
  private let api: API

  init(_ request: any WaitingRequest, _ grant: Grant?, _ context: RequestContext?, _ api: API) {
    self.request = request
    self.grant = grant
    self.context = context
    self.api = api
  }

  /// Whether the response must have no data, since the credentials were removed.
  private var isRevoked: Bool { grant?.isRevoked ?? false && request.effect != .change }

  var heldCount: Gauge? { request.heldCount }
  var notifier: Notifier { request.notifier }
  var deadline: MonotonicTime { request.deadline }
  var effect: HeldEffect { request.effect }
  var hasNewData: Bool { isRevoked || request.hasNewData }
  var isConcerned: Bool { isRevoked || request.isConcerned }
  var endsAtDrain: Bool { request.endsAtDrain }

  func beginStream(at now: MonotonicTime, into response: inout Response) -> (any Source)? {
    guard !isRevoked, let source = request.beginStream(at: now, into: &response) else { return nil }
    guard let context else { return source }
    api.writeFields(of: context, at: now, into: &response)
    return AccompaniedSource(source, context, api)
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    if isRevoked {
      let isUnchanged = request.effect == .none
      request.abandon()
      if isUnchanged { api.shared.access.refusals.count(.revoked) }
      api.respond(with: isUnchanged ? AuthenticationRefusal.revoked.problem : Self.withheld, into: &response)
    } else {
      request.finish(at: now, into: &response)
    }
    response.principal = API.principal(of: grant)
    guard let context else { return }
    api.release(context)
    api.writeFields(of: context, at: now, into: &response)
  }

  func abandon() {
    request.abandon()
    if let context { api.release(context) }
  }

  private static var withheld: Problem {
    Problem(
      .outcomeUnknown,
      detail:
        "the credentials were removed, or what they allow was changed, while this request was held. It may have been executed, and its result is not shown: repeat it with valid ones only if that does no harm"
    )
  }
}

/// A stream that is counted as a held request.
private final class AccompaniedSource: Source {
  private let source: any Source
  private let context: RequestContext
  private let api: API

  init(_ source: any Source, _ context: RequestContext, _ api: API) {
    self.source = source
    self.context = context
    self.api = api
  }

  var notifier: Notifier { source.notifier }
  var deadline: MonotonicTime { source.deadline }
  var hasNewData: Bool { source.hasNewData }
  var isConcerned: Bool { source.isConcerned }
  var principal: UInt64 { source.principal }

  func next(at now: MonotonicTime, into content: inout ResponseContent) -> SourceStep {
    source.next(at: now, into: &content)
  }

  func writeLast(at now: MonotonicTime, into content: inout ResponseContent) {
    source.writeLast(at: now, into: &content)
  }

  func close() {
    source.close()
    api.release(context)
  }
}
