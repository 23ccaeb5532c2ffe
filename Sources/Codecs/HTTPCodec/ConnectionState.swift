/// The two coupled automata of one server connection: what the client sends, and what we answer.
///
/// HTTP/1.1 without its syntax is this. Each side walks through its own states once for every request:
///
///     request:   idle ── head ──▶ body ── end ──▶ done                    the client's half
///     response:  idle ──────────▶ owed ── head ──▶ body ── end ──▶ done   our half
///
/// and they are tied together in five places, which are all the rules there are:
///
/// 1. A request head makes a response owed.
/// 2. When both are done and the connection is kept alive, both are idle again: the next request may be read. Not before, so
///    pipelined requests wait where they are, and answers cannot overtake one another (RFC 9112 §9.3.2).
/// 3. A response may be done before its request is: the rest of the request is read and thrown away (`body`/`done`).
/// 4. Whatever says 'no more' (`Connection: close`, HTTP/1.0, a limit, shutdown) clears `keepsAlive`, and it never comes
///    back. A response that ends then closes both sides, and what the client sent after it is not looked at (§9.6).
/// 5. A framing error makes the request `failed`: nothing more can be read. One answer may still be written if none was
///    begun (`owed`); with one begun, all that is left is to close.
///
/// Everything that decides a transition is in this file. What the peer does wrong arrives as `requestFailed`; an input that is
/// illegal here is a mistake of ours.
struct ConnectionState: Equatable {
  /// The client's half.
  enum Request: CaseIterable {
    /// No request has begun, or not all of its head has come. → body (head), closed (end of input), failed
    case idle
    /// The head has been read, and content may follow. → done (end), failed, idle (end, with the response done), closed
    case body
    /// All of it has been read; the response has not ended. → idle, closed (response ended)
    case done
    /// The framing is lost: one answer, then close. → closed (response ended)
    case failed
    /// Nothing more will be read. Final.
    case closed
  }

  /// Our half.
  enum Response: CaseIterable {
    /// Nothing is owed. → owed (request head or failure), closed (end of input)
    case idle
    /// A request waits for its answer; interim answers leave it here. → body (response head), closed (failure told)
    case owed
    /// The head was written, and content may follow. → done, idle or closed (end), closed (request failed)
    case body
    /// Answered before the request had ended. → idle (request ended), closed (request failed)
    case done
    /// The last answer has been written, or none can be: close the connection. Final.
    case closed
  }

  /// What happens to a connection.
  enum Input: CaseIterable {
    /// A whole request head was read.
    case requestHead
    /// The content and trailers of a request have ended.
    case requestEnd
    /// The client broke the protocol, or its request is not waited for any more.
    case requestFailed
    /// The client will send nothing more, between two requests.
    case endOfInput
    /// There is a reason to close after the answer.
    case keepAliveRefused
    /// We write a 1xx answer.
    case interimResponse
    /// We begin the final answer.
    case responseHead
    /// We end it.
    case responseEnd
  }

  var request = Request.idle
  var response = Response.idle
  var keepsAlive = true

  mutating func apply(_ input: Input) {
    guard let next = after(input) else {
      preconditionFailure("\(input) is not possible while the request is \(request) and the response \(response)")
    }
    self = next
  }

  /// The state that follows `input`; nil where it is not allowed.
  func after(_ input: Input) -> ConnectionState? {
    switch input {
    case .requestHead:
      guard request == .idle, response == .idle, keepsAlive else { return nil }
      return with(.body, .owed)

    case .requestEnd:
      guard request == .body else { return nil }
      switch response {
      case .owed, .body: return with(.done, response)
      case .done: return bothDone
      case .idle, .closed: return nil
      }

    case .requestFailed:
      switch (request, response) {
      case (.idle, .idle), (.body, .owed): return with(.failed, .owed, keepsAlive: false)
      case (.body, .body), (.body, .done): return with(.closed, .closed, keepsAlive: false)
      case (.idle, _), (.body, _), (.done, _), (.failed, _), (.closed, _): return nil
      }

    case .endOfInput:
      guard request == .idle, response == .idle else { return nil }
      return with(.closed, .closed, keepsAlive: false)

    case .keepAliveRefused:
      // Between two requests there is nobody to tell: the driver closes when it likes.
      if request == .idle, response == .idle { return with(.closed, .closed, keepsAlive: false) }
      // Waiting for the rest of a request whose answer is out would be for nothing.
      if response == .done { return with(.closed, .closed, keepsAlive: false) }
      return with(request, response, keepsAlive: false)

    case .interimResponse:
      guard response == .owed, request == .body || request == .done else { return nil }
      return self

    case .responseHead:
      guard response == .owed else { return nil }
      return with(request, .body)

    case .responseEnd:
      guard response == .body else { return nil }
      switch request {
      case .done: return bothDone
      case .body: return keepsAlive ? with(.body, .done) : with(.closed, .closed)
      case .failed: return with(.closed, .closed)
      case .idle, .closed: return nil
      }
    }
  }

  private var bothDone: ConnectionState { keepsAlive ? with(.idle, .idle) : with(.closed, .closed) }

  private func with(_ request: Request, _ response: Response, keepsAlive: Bool? = nil) -> ConnectionState {
    ConnectionState(request: request, response: response, keepsAlive: keepsAlive ?? self.keepsAlive)
  }
}
