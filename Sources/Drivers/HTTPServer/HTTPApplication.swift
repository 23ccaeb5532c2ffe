import ByteStreams
import HTTPCodec
import Metrics
import Reactor

/// The application behind an HTTP server: routes, access control and representations. It has no access to sockets.
///
/// One object per event loop, called on that loop only. The server calls `begin` once per request head. It then calls
/// exactly one of `finish`, when the content has arrived, and `abandon`.
package protocol HTTPApplication: AnyObject {
  /// Validates and routes a request by its head. A request that is refused here still gets its response from `finish`.
  func begin(
    _ request: borrowing HTTPRequestHead, on listener: HTTPListener, from client: borrowing ClientConnection
  ) -> Exchange

  /// The template of a client's request path, such as `/items/{id}`, for the access log; `-` if there is none.
  func route(of request: borrowing HTTPRequestHead) -> StaticString

  /// Whether the access log contains the request. It contains requests of clients, and no probes.
  func isClientRequest(_ request: borrowing HTTPRequestHead, on listener: HTTPListener) -> Bool

  /// The principal that sent a request, for the access log; nil if unknown. Called after `begin`.
  func principal(of exchange: borrowing Exchange) -> String?

  /// Returns the work on a request's content that must run on another thread before `finish`; nil if there is none.
  /// Called when the content has arrived, if `RequestBody.mayTakeLong`.
  func preparation(of exchange: borrowing Exchange) -> (any BodyPreparation)?

  /// Responds to a request. Its content is in `exchange.body` if `begin` set a body, and was dropped otherwise.
  ///
  /// `response` is empty on entry. For a request without a body to collect, `finish` may be called before the content
  /// has arrived, if the client expects `100 Continue`.
  func finish(_ exchange: consuming Exchange, at now: MonotonicTime, into response: inout Response) -> Outcome

  /// Ends a request without a response from the application: the client is gone or too slow, or it violated HTTP.
  func abandon(_ exchange: consuming Exchange)

  /// Adds to `response` the fields of every response to this request. Called before `refuse`.
  func addFields(to response: inout Response, for request: borrowing HTTPRequestHead, on listener: HTTPListener)

  /// Writes the response to a request that the server itself refuses.
  func refuse(_ refusal: HTTPServerRefusal, into response: inout Response)
}

extension HTTPApplication {
  package func addFields(
    to response: inout Response, for request: borrowing HTTPRequestHead, on listener: HTTPListener
  ) {}

  package func preparation(of exchange: borrowing Exchange) -> (any BodyPreparation)? { nil }
}

/// A request between `begin` and `finish` or `abandon`.
package struct Exchange {
  /// The key of the request in the application's own table.
  package let state: Int
  /// Collects the content. If nil, the content is read and dropped.
  package var body: RequestBody?

  package init(state: Int, body: RequestBody? = nil) {
    self.state = state
    self.body = body
  }
}

/// How an application responds to a request.
package enum Outcome {
  /// The response is complete.
  case respond
  /// The response follows when the waiting request finishes.
  case wait(any WaitingRequest)
  /// The status and fields are complete. The source produces the content.
  case stream(any Source)
}

/// The condition for the response of a held request, or for the next batch of a stream.
package enum WaitStep {
  /// Nothing: the server continues now.
  case ready
  /// News, which the notifier announces. The wait lasts at most until the deadline. If `endsAtDrain`, it also ends when
  /// the server drains.
  case wait(Notifier, until: MonotonicTime, endsAtDrain: Bool = true)
}

/// Why a held request advances.
package enum WaitCause {
  /// The wait begins, or its notifier has announced news.
  case news
  /// The wait ends now: its deadline has passed, the server drains, or the client can wait no longer.
  case end
}

/// A held request. Its main functions are `advance`, which acts and decides, and `finish`, which writes the response.
/// Unless the request begins a stream, exactly one of `finish` and `abandon` is called, once.
///
/// A struct of at most three words is stored inline in the connection. A larger struct costs an allocation.
package protocol WaitingRequest {
  /// The gauge that counts the request while it is held.
  var heldCount: Gauge? { get }
  /// The effects that the request may have had so far.
  var effect: HeldEffect { get }
  /// The lasting effect of the request if it now ends without its response. Read before `finish` and `abandon`.
  var residue: Residue { get }

  /// Acts as far as possible now. The server calls this before and after it registers for notifications, after each
  /// notification, and once with `.end` if the wait ends before the request is ready. It ignores the result of `.end`.
  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep

  /// Begins the response if it is a stream: writes the status and fields, and returns the source of the content.
  /// Returns nil if it is not a stream; in that case, `finish` is called next. `response` is empty on entry.
  func beginStream(at now: MonotonicTime, into response: inout Response) -> (any Source)?

  /// Writes the response, and releases the resources of the wait. Called after `advance` was ready or had the cause
  /// `.end`. `response` is empty on entry.
  func finish(at now: MonotonicTime, into response: inout Response)

  /// Called instead of `finish` when the client is gone.
  func abandon()
}

/// The effect that a held request may have had. Only if it is `none` may the response say that nothing was done.
package enum HeldEffect: Sendable {
  /// No effect, or none that remains when the request is abandoned.
  case none
  /// A change. The response reports it, and contains no data of others.
  case change
  /// A change. The response also contains data that others have sent.
  case changeAndData
}

/// The lasting effect of a held request that ended without its response.
package enum Residue: Sendable {
  /// No effect, or an effect that does not occur twice if the request is sent again.
  case nothing
  /// The request was executed, or may still be, although its client gets no response.
  case mayBeDone
}

extension WaitingRequest {
  package var effect: HeldEffect { .none }
  package var residue: Residue { .nothing }
  package func beginStream(at now: MonotonicTime, into response: inout Response) -> (any Source)? { nil }
}

/// The content of a streamed response.
///
/// The server requests the next batch only after the kernel has taken the previous batch, so a slow client costs one
/// batch, not a queue. Only a write detects that a client is gone. So a source without new data must have a deadline,
/// and a batch that it sends at this deadline. While the server drains, sources continue until each stream ends at a
/// time of its own, with `writeLast`.
package protocol Source: AnyObject {
  /// See `Response.principal`.
  var principal: UInt64 { get }

  /// Returns whether `next` has work to do. Called like `WaitingRequest.advance`.
  func advance(at now: MonotonicTime) -> WaitStep

  /// Appends the next batch to `content`, if there is one.
  func next(at now: MonotonicTime, into content: inout ResponseContent) -> SourceStep

  /// Appends the last batch, because the server drains.
  func writeLast(at now: MonotonicTime, into content: inout ResponseContent)

  /// Called once, when the source has ended, the client is gone, or the server drains.
  func close()
}

package enum SourceStep {
  /// More content may be available immediately.
  case more
  /// There is no content until `advance` is ready or its deadline passes.
  case wait
  /// The content is complete.
  case end
}

/// Why the server refuses a request without the application.
package enum HTTPServerRefusal {
  /// The request violates HTTP or exceeds a limit.
  case malformed(HTTPProtocolError)
  /// The head did not arrive in time.
  case slowHead
  /// The content stalled or was too slow, after `received` bytes.
  case slowBody(received: Int)
  /// The partially received bodies of all connections together exceed the memory limit.
  case tooManyBodies
  /// Other bodies have taken too long to prepare.
  case slowPreparation
}
