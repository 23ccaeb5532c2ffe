import ByteStreams
import Forwarding
import HTTPCodec
import Host

/// A request of a client in the form in which it is sent to another gateway.
package struct ForwardedRequest: Sendable {
  package let method: HTTPMethod
  /// Path and query, as the client sent them.
  package let target: String
  /// The field lines that a handler needs, and the field lines that gateways add, each with its CRLF. Host,
  /// Content-Length and the secret are not among them.
  package let fieldLines: [UInt8]
  package let content: [UInt8]
  package let repetition: ForwardingRepetition
  /// How long the request may take at its holder.
  package let time: TimeSpan
  /// Whether the request may take longer than its execution because it waits, for example for a push or a state.
  package let waits: Bool
  /// The client for which the request is counted; 0 if it is unknown.
  let client: UInt64
  /// The time at which the request was complete. The gateway that gets the request subtracts the time since `start`
  /// from the client's wait.
  package let start: MonotonicTime

  package init(
    _ method: HTTPMethod, target: String, fieldLines: [UInt8], content: [UInt8],
    repetition: ForwardingRepetition, time: TimeSpan, waits: Bool, by client: UInt64 = 0, start: MonotonicTime
  ) {
    self.client = client
    self.time = time
    self.waits = waits
    self.start = start
    self.method = method
    self.target = target
    self.fieldLines = fieldLines
    self.content = content
    self.repetition = repetition
  }
}

/// How a forwarded request ended.
package enum ForwardedOutcome: Sendable {
  /// The response of the holder.
  case response(HTTPStatus, fields: [UInt8], content: ByteString)
  /// The request was not executed, or repeating it is harmless.
  case unavailable
  /// Like `unavailable`, because this gateway cannot connect to the holder at this address.
  case unreachable(SocketAddress)
  /// Like `unavailable`, but no gateway will execute the request, since the session is closed.
  case closed
  /// The request may have been executed.
  case unknown
}
