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

  /// Whether the request is one of a client, which the access log contains, and not a probe.
  func isClientRequest(_ request: borrowing HTTPRequestHead, on listener: HTTPListener) -> Bool

  /// The principal that sent a request, for the access log; nil if unknown. Called after `begin`.
  func principal(of exchange: borrowing Exchange) -> String?

  /// Returns the work on a request's content that must run on another thread before `finish`; nil if there is none.
  /// Called when the content has arrived, if it has at least the size that the body names.
  func preparation(of exchange: borrowing Exchange) -> (any BodyPreparation)?

  /// Responds to a request. Its content is in `exchange.body` if `begin` set a body, and was dropped otherwise.
  ///
  /// `response` is empty on entry. For a request without a body to collect, `finish` may be called before the content
  /// has arrived, if the client expects `100 Continue`.
  func finish(_ exchange: consuming Exchange, at now: MonotonicTime, into response: inout Response) -> Outcome

  /// Ends a request without a response from the application: the client is gone or too slow, or it violated HTTP.
  func abandon(_ exchange: consuming Exchange)

  /// Adds the fields that every response to this request has to `response`. Called before `refuse`.
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

/// Waits for new data until a deadline. Used on one event loop.
package protocol Waiter {
  /// Notified after every change that may be new data for this waiter.
  var notifier: Notifier { get }
  /// The wait ends at this time even without new data.
  var deadline: MonotonicTime { get }
  /// Whether there is new data.
  var hasNewData: Bool { get }
  /// Whether the server must check this waiter after a notification, because there is new data or a new deadline. A
  /// waiter returns `hasNewData` if most notifications concern others.
  var isConcerned: Bool { get }
}

extension Waiter {
  package var isConcerned: Bool { true }
}

/// A held request: it gets its response when new data arrives or its deadline passes. Exactly one of `finish` and
/// `abandon` is called, once, unless it begins a stream.
///
/// A struct of at most three words is stored inline in the connection. A larger struct costs an allocation.
package protocol WaitingRequest: Waiter {
  /// Incremented while the request is held.
  var heldCount: Gauge? { get }
  /// Whether the wait ends early when the server drains. If not, the request may wait for its deadline.
  var endsAtDrain: Bool { get }
  /// The effects that the request may have had so far.
  var effect: HeldEffect { get }
  /// What remains if the request now ends without its response. Read before `finish` and `abandon`.
  var residue: Residue { get }

  /// Begins the response if it is a stream: writes the status and fields, and returns the source of the content.
  /// Returns nil if it is not a stream; `finish` follows then. `response` is empty on entry.
  func beginStream(at now: MonotonicTime, into response: inout Response) -> (any Source)?

  /// Writes the response, with or without new data. `response` is empty on entry.
  func finish(at now: MonotonicTime, into response: inout Response)

  /// Called instead of `finish` when the client is gone.
  func abandon()
}

/// The effect that a held request may have had. Only with `none` may its response say that nothing was done.
package enum HeldEffect: Sendable {
  /// No effect, or none that remains when the request is abandoned.
  case none
  /// A change. The response reports it, and contains no data of others.
  case change
  /// A change. The response also contains data that others have sent.
  case changeAndData
}

/// What remains of a held request that ended without its response.
package enum Residue: Sendable {
  /// Nothing, or nothing that a repetition would do twice.
  case nothing
  /// The request was executed, or may still be, although its client gets no response.
  case mayBeDone
}

extension WaitingRequest {
  package var endsAtDrain: Bool { true }
  package var effect: HeldEffect { .none }
  package var residue: Residue { .nothing }
  package func beginStream(at now: MonotonicTime, into response: inout Response) -> (any Source)? { nil }
}

/// The content of a streamed response.
///
/// The server requests the next batch only after the kernel has taken the previous one, so a slow client costs one
/// batch, not a queue. Only a write detects that a client is gone. So a source without new data must have a deadline,
/// and a batch to send at it. While the server drains, sources continue until each stream ends at a time of its own,
/// with `writeLast`.
package protocol Source: Waiter, AnyObject {
  /// See `Response.principal`.
  var principal: UInt64 { get }

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
  /// There is no content until the source has new data or its deadline passes.
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
