import ByteStreams

/// How much content a response has.
package enum HTTPResponseContent: Equatable, Sendable {
  /// None: `Content-Length: 0` where the status allows one.
  case none
  /// So many bytes.
  case length(Int)
  /// Unknown beforehand: chunked, or up to the end of the connection for HTTP/1.0.
  case stream
}

/// How the content of the response that is being written is framed (RFC 9112 §6).
enum ResponseFraming: Equatable {
  /// Nothing is written: there is no content, or the request was HEAD.
  case none
  /// So many bytes are still to come.
  case length(Int)
  case chunked
  case untilClose
}

extension HTTPServerConnection {
  /// Writes `100 Continue`. The request must have asked for it: see `shouldSendContinue`.
  package mutating func writeContinue(into output: inout ByteQueue) {
    state.apply(.interimResponse)
    precondition(settleContinue(), "the client does not wait for 100 Continue")
    output.append("HTTP/1.1 100 Continue\r\n\r\n")
  }

  /// Whether an interim response may be written now: HTTP/1.0 has none (RFC 9110 §15.2).
  package var takesInterimResponse: Bool { state.after(.interimResponse) != nil && !requestIsHTTP10 }

  /// Writes `100 Continue` where the client has not asked for it, as any response may be preceded by it.
  package mutating func writeInterimContinue(into output: inout ByteQueue) {
    state.apply(.interimResponse)
    _ = settleContinue()
    output.append("HTTP/1.1 100 Continue\r\n\r\n")
  }

  /// Says `Connection: close` in the response that is owed, or closes after the one being written.
  package mutating func closeAfterThisResponse() {
    if state.response != .closed { state.apply(.keepAliveRefused) }
  }

  /// Writes the status line and the fields that are the connection's own: Date, framing, Connection. The caller's fields
  /// follow by `output.appendField`, and then `output.endFields()`.
  ///
  /// - Parameter date: the value of the Date field (`HTTPDate`), rendered once a second by the caller; empty writes none.
  package mutating func beginResponse(
    _ status: HTTPStatus, _ content: HTTPResponseContent, date: Span<UInt8>, into output: inout ByteQueue
  ) {
    precondition(!status.isInterim, "an interim response does not end a request")
    // A client that waited for 100 Continue may or may not send the content now: only closing is unambiguous
    // (RFC 9110 §10.1.1).
    if settleContinue(), state.request == .body { state.keepsAlive = false }
    state.apply(.responseHead)
    output.reserve(256)
    output.append(statusLine: status)
    if !date.isEmpty { output.appendField("Date", date) }
    switch content {
    case _ where status.forbidsContent:
      precondition(content == .none, "a \(status.rawValue) response has no content")
      self.output = .none
    case .none:
      output.append("Content-Length: 0\r\n")
      self.output = .none
    case .length(let count):
      output.appendField("Content-Length", decimal: count)
      self.output = requestIsHEAD ? .none : .length(count)
    case .stream where requestIsHTTP10:
      state.keepsAlive = false
      self.output = requestIsHEAD ? .none : .untilClose
    case .stream:
      output.append("Transfer-Encoding: chunked\r\n")
      self.output = requestIsHEAD ? .none : .chunked
    }
    if willClose {
      output.append("Connection: close\r\n")
    } else if requestIsHTTP10 {
      output.append("Connection: keep-alive\r\n")
    }
  }

  /// Whether the response that is owed may be bytes that were written before, on another connection for which this was true:
  /// the request leaves no trace in them.
  package var takesPreparedResponse: Bool {
    state.response == .owed && state.request == .done && !requestIsHEAD && !requestIsHTTP10 && !willClose
  }

  /// The response that is owed was such bytes, from the first to the last. The next request may be read.
  package mutating func passPreparedResponse() {
    precondition(takesPreparedResponse, "this response has to be written for its request")
    _ = settleContinue()
    state.apply(.responseHead)
    state.apply(.responseEnd)
  }

  /// Whether the response that was begun takes content: not for HEAD, 204 or 304. Without it, content is dropped.
  package var responseTakesContent: Bool { output != .none }

  /// Writes a piece of content with its framing. Empty pieces write nothing.
  package mutating func writeContent(_ content: Span<UInt8>, into output: inout ByteQueue) {
    guard beginContent(content.count, into: &output) else { return }
    output.append(content)
    endContent(into: &output)
  }

  /// Writes what comes before a piece of content of `count` bytes that the caller sends from elsewhere, by a gathering write.
  /// False when it must not be sent at all. `endContent(into:)` writes what comes behind it.
  package mutating func beginContent(_ count: Int, into output: inout ByteQueue) -> Bool {
    precondition(state.response == .body, "no response has been begun")
    guard count > 0 else { return false }
    switch self.output {
    case .none: return false
    case .length(let remaining):
      precondition(count <= remaining, "more content than Content-Length said")
      self.output = .length(remaining &- count)
    case .chunked:
      output.append(hexadecimal: UInt64(count))
      output.append("\r\n")
    case .untilClose: break
    }
    return true
  }

  /// Writes what comes behind a piece of content.
  package mutating func endContent(into output: inout ByteQueue) {
    if self.output == .chunked { output.append("\r\n") }
  }

  /// Ends the response: the last chunk where there are chunks. The next request may be read, or the connection is closed.
  package mutating func finishResponse(into output: inout ByteQueue) {
    switch self.output {
    case .none, .untilClose: break
    case .length(let remaining): precondition(remaining == 0, "less content than Content-Length said")
    case .chunked: output.append("0\r\n\r\n")
    }
    self.output = .none
    state.apply(.responseEnd)
  }
}

extension ByteQueue {
  /// `HTTP/1.1 404 Not Found`.
  mutating func append(statusLine status: HTTPStatus) {
    if let line = status.statusLine {
      append(line)
    } else {
      append("HTTP/1.1 ")
      append(decimal: Int(status.rawValue))
      append(" \r\n")
    }
  }

  /// Writes one header field. `name` and `value` must hold no CR, LF or NUL: for a value that came from outside, use the form
  /// that takes bytes, which replaces them.
  package mutating func appendField(_ name: StaticString, _ value: StaticString) {
    append(name)
    append(": ")
    append(value)
    append("\r\n")
  }

  /// Writes one header field. Control characters in `value` become spaces: nothing from outside can add a line.
  package mutating func appendField(_ name: StaticString, _ value: Span<UInt8>) {
    reserve(name.utf8CodeUnitCount &+ value.count &+ 4)
    append(name)
    append(": ")
    if value.firstControl(from: 0) == value.count {
      append(value)
    } else {
      for index in value.indices {
        let byte = value[index]
        append(byte < 0x20 || byte == 0x7F ? 0x20 : byte)
      }
    }
    append("\r\n")
  }

  package mutating func appendField(_ name: StaticString, decimal value: Int) {
    append(name)
    append(": ")
    append(decimal: value)
    append("\r\n")
  }

  /// The empty line behind the last field.
  package mutating func endFields() { append("\r\n") }
}
