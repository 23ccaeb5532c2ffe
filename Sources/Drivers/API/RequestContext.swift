import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Host
import Metrics
import Reactor

/// Facts about a request besides its content, kept until its response: the web page that sent it, and the limits that
/// count it. Exists only for requests that have at least one of these facts.
final class RequestContext {
  /// The allowed origin of the page.
  let origin: CrossOrigin.Origin?
  /// Whether the page may use the cookie.
  let allowsCredentials: Bool
  var isPreflight = false
  var client: RateLimiter.Client?
  /// The origin of the client if another gateway has forwarded the request, otherwise nil. The other gateway counts
  /// requests, and this gateway counts messages.
  var forwardedOrigin: ClientOrigin?
  var isForwarded: Bool { forwardedOrigin != nil }
  /// Whether the holder counts the messages. If the holder refuses them, it writes the state of the limit.
  var isSentToHolder = false
  fileprivate var hold: RateLimiter.Hold?
  /// Whether the request is counted in `heldManagementRequests`.
  fileprivate var holdsManagement = false

  init(_ origin: CrossOrigin.Origin?, allowsCredentials: Bool, _ client: RateLimiter.Client?) {
    self.origin = origin
    self.allowsCredentials = allowsCredentials
    self.client = client
  }
}

extension API {
  /// Whether the page that sends the request may use the cookie. The cookie applies only to GET and HEAD.
  func allowsCredentials(_ request: borrowing HTTPRequestHead) -> Bool {
    // Before a GET, a browser may send OPTIONS.
    !common.access.isOpen && (request.method == .get || request.method == .head || request.method == .options)
  }

  /// Throws 429 if the client of the request may send no message now.
  func checkMessages(in context: RequestContext?) throws(Problem) {
    // A request that another gateway repeats may already be accepted, so it must not be refused here.
    guard let context, !context.isForwarded, let client = context.client else { return }
    try common.limiter.checkMessages(of: client, at: ProcessInformation.monotonicTime())
  }

  /// Counts the messages of a request, or throws 429.
  func admitMessages(_ count: Int, in context: RequestContext?, at now: MonotonicTime) throws(Problem) {
    guard let client = context?.client else { return }
    try common.limiter.admitMessages(count, of: client, at: now)
  }

  /// Counts a request that may wait, until `release`. Throws 429 if too many such requests are in progress.
  func hold(_ context: RequestContext) throws(Problem) {
    guard let client = context.client else { return }
    context.hold = try common.limiter.hold(for: client, at: ProcessInformation.monotonicTime())
  }

  /// Counts a request on a management listener that may wait, until `release`. Throws 429 if such requests would leave
  /// too few connections for probes.
  func holdManagement(_ context: inout RequestContext?) throws(Problem) {
    let connections = common.managementConnections
    guard heldManagementRequests < connections / 2 else {
      throw Problem(
        .tooManyRequests,
        "at most half of the \(connections) connections of the management listener (http.management_connections) may wait or be streams, and the others are for probes: use a listener for clients"
      )
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
    if let hold = context.hold.take() { common.limiter.release(hold) }
  }

  /// Adds the fields of the request's context to the response. If the request waits, its response gets the fields after
  /// the wait. A wait also ends when the credentials of its request are removed.
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
    // The response to a preflight already has these fields.
    if let origin = context.origin, !context.isPreflight {
      common.browsers.crossOrigin.writeFields(
        for: origin, allowsCredentials: context.allowsCredentials, into: &response.additionalFields)
    }
    guard let client = context.client else { return }
    let isRefused = response.prepared == nil && response.status == .tooManyRequests
    let isOfHolder = isRefused && context.isSentToHolder
    if context.isForwarded ? isRefused : !isOfHolder {
      common.limiter.writeFields(
        of: client, all: isRefused, only: context.isForwarded ? .messages : nil, at: now,
        into: &response.additionalFields)
    }
  }
}

/// A held request with a context, or with credentials that may be removed meanwhile. Once the credentials are removed,
/// the request gets no data. It ends at the next notification or at its deadline: with 401 if it has had no effect,
/// otherwise with a problem that says that the request may have been executed. A request whose response contains only
/// its own effect does not end early.
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

  /// Whether the credentials were removed, and the response would contain data.
  private var isRevoked: Bool { grant?.isRevoked ?? false && request.effect != .change }

  var heldCount: Gauge? { request.heldCount }
  var effect: HeldEffect { request.effect }
  var residue: Residue { request.residue }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    isRevoked ? .ready : request.advance(cause, at: now)
  }

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
      let access = api.common.access
      if isUnchanged { access.refusals.count(.revoked) }
      let revoked = AuthenticationRefusal.revoked.problem(acceptsTokens: access.acceptsTokens)
      api.respond(with: isUnchanged ? revoked : Self.withheld, into: &response)
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
      "the credentials were removed, or their rights were changed, while this request was held. It may have been executed, and its result is not shown: repeat it with valid credentials only if that does no harm"
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

  var principal: UInt64 { source.principal }

  func advance(at now: MonotonicTime) -> WaitStep { source.advance(at: now) }

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
