/// The two coupled state machines of a server connection: one for the request, one for the response.
///
/// The two machines are HTTP/1.1 without its syntax. Each goes through its states once per request:
///
///     request:   idle ── head ──▶ body ── end ──▶ done                    the client's half
///     response:  idle ─────────▶ pending ─ head ─▶ body ── end ──▶ done   the server's half
///
/// Five rules couple the two machines:
///
/// 1. A request head makes a response pending.
/// 2. When request and response are done and the connection is kept alive, both return to idle, and the next request
/// may be read. Until then, pipelined requests are not parsed, so responses stay in order (RFC 9112 §9.3.2).
/// 3. A response may end before its request. The rest of the request is then read and discarded (`body`/`done`).
/// 4. Anything that ends persistence (`Connection: close`, HTTP/1.0, a limit, shutdown) clears `keepsAlive` for good.
/// The end of the response then closes both sides, and input after the request is ignored (§9.6).
/// 5. A framing error makes the request `failed`, and nothing more can be read. If no response was begun, a response
///    may still be sent (`pending`). If a response was begun, the connection can only be closed.
///
/// This file decides every transition. The only exception is that the connection may clear `keepsAlive` directly. An
/// error of the peer is the input `requestFailed`. An input that is not allowed in the current state is a bug of this
/// program.
@usableFromInline
struct ConnectionState: Equatable {
  /// The request side.
  @usableFromInline
  enum Request: CaseIterable {
    /// No request has begun, or its head is incomplete. → body (head), closed (end of input, keep-alive refused),
    /// failed
    case idle
    /// The head was read; content may follow. → done (end), idle (end, response done), failed, closed (failure,
    /// response ended)
    case body
    /// The request was read; the response has not ended. → idle or closed (response ended)
    case done
    /// The framing is lost. One response may be sent, and after it the connection closes. → closed (response ended)
    case failed
    /// No more input will be read. Final.
    case closed
  }

  /// The response side.
  @usableFromInline
  enum Response: CaseIterable {
    /// No response is pending. → pending (request head or failure), closed (end of input, keep-alive refused)
    case idle
    /// A request needs a response. Interim responses do not change this. → body (response head)
    case pending
    /// The head was written; content may follow. → done, idle or closed (end), closed (request failed)
    case body
    /// The response ended before its request. → idle (request ended), closed (request failed, keep-alive refused)
    case done
    /// The last response was written, or no response can be written. The connection must be closed. Final.
    case closed
  }

  /// The events that change the state.
  enum Input: CaseIterable {
    /// A complete request head was read.
    case requestHead
    /// The content and trailers of the request have ended.
    case requestEnd
    /// The client violated the protocol, or the rest of its request is abandoned.
    case requestFailed
    /// The client closed its side between two requests.
    case endOfInput
    /// The connection must close after the response.
    case keepAliveRefused
    /// A 1xx response is written.
    case interimResponse
    /// The final response begins.
    case responseHead
    /// The final response ends.
    case responseEnd
  }

  @usableFromInline var request = Request.idle
  @usableFromInline var response = Response.idle
  @usableFromInline var keepsAlive = true

  mutating func apply(_ input: Input) {
    guard let next = after(input) else {
      preconditionFailure("\(input) is not possible while the request is \(request) and the response \(response)")
    }
    self = next
  }

  /// The state after `input`, or nil if `input` is not allowed.
  func after(_ input: Input) -> ConnectionState? {
    switch input {
    case .requestHead:
      guard request == .idle, response == .idle, keepsAlive else { return nil }
      return with(.body, .pending)

    case .requestEnd:
      guard request == .body else { return nil }
      switch response {
      case .pending, .body: return with(.done, response)
      case .done: return bothDone
      case .idle, .closed: return nil
      }

    case .requestFailed:
      switch (request, response) {
      case (.idle, .idle), (.body, .pending): return with(.failed, .pending, keepsAlive: false)
      case (.body, .body), (.body, .done): return with(.closed, .closed, keepsAlive: false)
      case (.idle, _), (.body, _), (.done, _), (.failed, _), (.closed, _): return nil
      }

    case .endOfInput:
      guard request == .idle, response == .idle else { return nil }
      return with(.closed, .closed, keepsAlive: false)

    case .keepAliveRefused:
      // Between two requests there is no response that could contain `Connection: close`. The connection closes without
      // a response, which is allowed at any time.
      if request == .idle, response == .idle { return with(.closed, .closed, keepsAlive: false) }
      // The response has already been sent, so the rest of the request need not be read.
      if response == .done { return with(.closed, .closed, keepsAlive: false) }
      return with(request, response, keepsAlive: false)

    case .interimResponse:
      guard response == .pending, request == .body || request == .done else { return nil }
      return self

    case .responseHead:
      guard response == .pending else { return nil }
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
