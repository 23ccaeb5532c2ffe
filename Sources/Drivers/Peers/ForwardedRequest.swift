import ByteStreams
import Forwarding
import HTTPCodec
import Reactor

/// A request of a client as another gateway gets it.
package struct ForwardedRequest: Sendable {
  package let method: HTTPMethod
  /// Path and query, as the client has sent them.
  package let target: String
  /// Lines of the fields that mean something to a handler, and of those that gateways add, each with its CRLF. Without Host, the secret and
  /// Content-Length.
  package let fieldLines: [UInt8]
  package let content: [UInt8]
  package let repetition: ForwardingRepetition
  /// How long it may take at its holder.
  package let time: TimeSpan
  /// Whether the client waits for more than its execution.
  package let waits: Bool
  /// The client that it is counted for; 0 if that is not known.
  let client: UInt64
  /// When it was complete. The wait of the client ends so much earlier at the gateway that gets it.
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
  case response(HTTPStatus, fields: [UInt8], content: SharedBytes)
  /// It was not executed, or repeating it is harmless.
  case unavailable
  /// As `unavailable`: the holder cannot be reached at this address.
  case unreachable(SocketAddress)
  /// As `unavailable`, and no gateway will execute it: the session is closed.
  case closed
  /// It may have been executed.
  case unknown
}
