import ByteStreams

/// The amount of content of a response.
package enum HTTPResponseContent: Equatable, Sendable {
  /// No content. Sends `Content-Length: 0` if the status allows it.
  case none
  /// This many bytes.
  case length(Int)
  /// The length is unknown. The content is sent chunked, or delimited by the end of the connection in HTTP/1.0.
  case stream
  /// The length is unknown. The content is delimited by the end of the connection.
  case untilClose
}

/// The framing of the content that is being written (RFC 9112 §6).
enum ResponseFraming: Equatable {
  /// No content is written, because there is none or because the request was HEAD.
  case none
  /// This many bytes remain to be written.
  case length(Int)
  case chunked
  case untilClose
}

extension HTTPServerConnection {
  /// Writes `100 Continue`. The client must be waiting for it: see `shouldSendContinue`.
  package mutating func writeContinue(into output: inout ByteQueue) {
    state.apply(.interimResponse)
    precondition(endContinueWait(), "the client does not wait for 100 Continue")
    output.append("HTTP/1.1 100 Continue\r\n\r\n")
  }

  /// Whether an interim response may be written now. HTTP/1.0 has no interim responses (RFC 9110 §15.2).
  package var canSendInterimResponse: Bool { state.after(.interimResponse) != nil && !requestIsHTTP10 }

  /// Writes `100 Continue` even if the client did not request it, which is allowed before any final response.
  package mutating func writeInterimContinue(into output: inout ByteQueue) {
    state.apply(.interimResponse)
    _ = endContinueWait()
    output.append("HTTP/1.1 100 Continue\r\n\r\n")
  }

  /// Makes the connection close after the current response. If that response is still pending, it gets `Connection:
  /// close`.
  package mutating func closeAfterThisResponse() {
    if state.response != .closed { state.apply(.keepAliveRefused) }
  }

  /// Writes the status line and the connection's own fields: Date, framing and Connection. The caller adds its fields
  /// with `output.appendField` and ends them with `output.endFields()`.
  ///
  /// - Parameter date: the value of the Date field, formatted once per second by the caller (`HTTPDate`). If empty, no
  ///   Date is written.
  package mutating func beginResponse(
    _ status: HTTPStatus, _ content: HTTPResponseContent, date: Span<UInt8>, into output: inout ByteQueue
  ) {
    precondition(!status.isInterim, "an interim response does not end a request")
    // After a final response, it is unknown whether a client that waits for 100 Continue sends its content. So the
    // connection must close after the response (RFC 9110 §10.1.1).
    if endContinueWait(), state.request == .body { state.keepsAlive = false }
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
    case .stream where requestIsHTTP10, .untilClose:
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

  /// Whether the pending response may be sent as bytes that were prepared for another request. The condition ensures
  /// that no part of the response depends on the method, version or persistence of the request. It must also have been
  /// true for that other request.
  @inlinable package var canSendPreparedResponse: Bool {
    state.response == .pending && state.request == .done && !requestIsHEAD && !requestIsHTTP10 && !willClose
  }

  /// Records that the pending response was sent completely from prepared bytes. The next request may be read.
  package mutating func completePreparedResponse() {
    precondition(canSendPreparedResponse, "this response has to be written for its request")
    _ = endContinueWait()
    state.apply(.responseHead)
    state.apply(.responseEnd)
  }

  /// Whether the current response has content to write. False for HEAD, 204 and 304. If content is passed for such a
  /// response, it is discarded.
  package var responseHasContent: Bool { output != .none }

  /// Writes a piece of content with its framing. An empty piece writes nothing.
  package mutating func writeContent(_ content: Span<UInt8>, into output: inout ByteQueue) {
    guard beginContent(content.count, into: &output) else { return }
    output.append(content)
    endContent(into: &output)
  }

  /// Writes the framing before a piece of content of `count` bytes. The caller sends the piece itself, by a gathering
  /// write, and calls `endContent(into:)` for the framing after it. Returns false if the piece must not be sent.
  package mutating func beginContent(_ count: Int, into output: inout ByteQueue) -> Bool {
    precondition(state.response == .body, "no response was begun")
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

  /// Writes the framing after a piece of content.
  package mutating func endContent(into output: inout ByteQueue) {
    if self.output == .chunked { output.append("\r\n") }
  }

  /// Ends the response. Writes the last chunk if the response is chunked. After this call, the next request may be
  /// read, or the connection is closed.
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
  /// Appends the status line, such as `HTTP/1.1 404 Not Found`, and its CRLF.
  mutating func append(statusLine status: HTTPStatus) {
    if let line = status.statusLine {
      append(line)
    } else {
      append("HTTP/1.1 ")
      append(decimal: Int(status.rawValue))
      append(" \r\n")
    }
  }

  /// Writes one header field. `name` and `value` must not contain CR, LF or NUL. Values that do not come from this
  /// program must be written by the overload that takes bytes.
  package mutating func appendField(_ name: StaticString, _ value: StaticString) {
    append(name)
    append(": ")
    append(value)
    append("\r\n")
  }

  /// Writes one header field. Control characters in `value` become spaces, so a value cannot inject a line.
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

  /// Writes the empty line after the last field.
  package mutating func endFields() { append("\r\n") }
}
