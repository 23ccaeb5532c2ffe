import HTTPCodec
import HTTPServer

/// Decides whether a request is served, from its head and its listener. Every request of every route passes through here.
package struct Access: Sendable {
  /// The client on whose behalf a request is made.
  enum Principal: Equatable {
    /// All clients: there is no authentication.
    case anyone

    /// Distinguishes principals.
    var name: StaticString { "" }
    /// Whose idempotency keys are counted together.
    var number: UInt32 { 0 }
  }

  private let browsers: BrowserAccess

  package init(_ browsers: BrowserAccess) { self.browsers = browsers }

  /// The origins whose pages may read responses.
  var crossOrigin: CrossOrigin { browsers.crossOrigin }

  /// Throws the problem to respond with if the request is refused.
  ///
  /// - Parameter acceptedHost: one per event loop.
  func admit(
    _ request: borrowing HTTPRequestHead, on listener: HTTPListener, _ acceptedHost: inout AcceptedHost
  ) throws(ProblemError) -> Principal {
    if let problem = browsers.refusal(of: request, on: listener.reach, &acceptedHost) { throw ProblemError(problem) }
    return .anyone
  }
}
