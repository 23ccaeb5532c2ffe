import ByteStreams
import HTTPCodec
import Metrics
import Reactor

/// What an HTTP server serves: routes, access control and representations, without a socket.
///
/// One object per event loop, called on that loop only. The server calls `begin` once for each request head. Then it calls
/// either `finish`, when the content has arrived, or `abandon`.
package protocol HTTPApplication: AnyObject {
  /// Decides what a request is for, from its head. A request that is refused already gets its response from `finish`.
  func begin(_ request: borrowing HTTPRequestHead, on listener: HTTPListener) -> Exchange

  /// Responds to a request. Its content is in `exchange.body` if `begin` has put a body there, and has been dropped otherwise.
  ///
  /// `response` is empty. A request without a wanted content may be finished before its content has arrived, for a client that
  /// waits for `100 Continue`.
  func finish(_ exchange: consuming Exchange, at now: MonotonicTime, into response: inout Response) -> Outcome

  /// The request ends without a response of the application: its client is gone or too slow, or it broke the rules of HTTP.
  func abandon(_ exchange: consuming Exchange)

  /// Writes the response to a request that the server refuses by itself.
  func refuse(_ refusal: HTTPServerRefusal, into response: inout Response)
}

/// One request on its way to its response.
package struct Exchange {
  /// Where the application keeps what it knows of the request, in a table of its own.
  package let state: Int
  /// Collects the content. nil: the content is read and dropped.
  package var body: RequestBody?

  package init(state: Int, body: RequestBody? = nil) {
    self.state = state
    self.body = body
  }
}

/// What a request gets.
package enum Outcome {
  /// The response, now.
  case respond
  /// A response later.
  case wait(any WaitingRequest)
  /// The response's status and fields now, and its content piece by piece.
  case stream(any Source)
}

/// Waits for news. Used on one event loop.
package protocol Waiter {
  /// Rung after any change that may be news for this waiter.
  var bell: Bell { get }
  /// When the wait ends without news.
  var deadline: MonotonicTime { get }
  /// Looks for news. Called whenever the bell has rung.
  var hasNews: Bool { get }
  /// Whether most rings are news for other waiters only. Then the server looks for news before it resumes the request's task.
  var sharesBell: Bool { get }
}

extension Waiter {
  package var sharesBell: Bool { false }
}

/// A request that waits for news before it gets its response. Exactly one of `finish` and `abandon` is called, once.
///
/// A struct of at most three words is stored in the connection itself, so holding it allocates nothing. A larger one costs an
/// allocation.
package protocol WaitingRequest: Waiter {
  /// Counts the request while its connection holds it.
  var heldCount: Gauge? { get }

  /// Writes the response, with or without news. `response` is empty.
  func finish(at now: MonotonicTime, into response: inout Response)

  /// The client is gone.
  func abandon()
}

/// The content of a response that is sent piece by piece.
///
/// The server asks for the next batch only once the kernel has taken the last one: a slow client costs one batch, not a queue. A client
/// that is gone is noticed by writing only, so a source without news must have a deadline, and a batch for it.
package protocol Source: Waiter, AnyObject {
  /// Appends the next batch to `content`, if there is one.
  func next(at now: MonotonicTime, into content: inout ResponseContent) -> SourceStep

  /// Nothing more is asked for: the source has ended, the client is gone, or the server drains. Called once.
  func close()
}

package enum SourceStep {
  /// There may be more right away.
  case more
  /// Nothing more until the source has news or its deadline comes.
  case wait
  /// The content is complete.
  case end
}

/// A request that the server refuses without the application.
package enum HTTPServerRefusal {
  /// It breaks a rule of HTTP, or a limit.
  case malformed(HTTPProtocolError)
  /// Its head did not arrive in time.
  case slowHead
  /// Its content stopped or was too slow after `received` bytes.
  case slowBody(received: Int)
  /// The partially received bodies of all connections together take too much memory.
  case tooManyBodies
}
