import ByteStreams
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// What a connection reports to its owner.
enum ConnectionEvent {
  // On its way.
  /// All files that the attempt needs have been read.
  case prepared
  case advanced(AttemptPhase)
  indirect case upgraded(ClientHandshake.Agreement)
  // The attempt's ends, besides `upgraded`. The connection is over.
  indirect case redirected(WebSocketURL)
  indirect case failed(AttemptReport)

  // Once it is open.
  /// Bytes have arrived.
  case heard
  /// A whole message has arrived; it is in `socket.payload` during the report. `time`: wall-clock time in milliseconds.
  case message(MessageKind, time: Int64)
  /// The pong to the ping with this counter.
  case pong(UInt64)
  /// The upstream's close frame; 1005 stands for one without a code.
  indirect case closed(code: UInt16, reason: String)
  /// The output has room for so many bytes: clients' messages can be appended during the report. They are written right after it.
  case writable(room: Int)
  /// The output was written as far as the kernel takes it.
  case flushed(isBlocked: Bool, returned: OutputMarks.Returned?)
  /// The kernel has every message up to this sequence number.
  case written(through: UInt64)
  /// The connection is gone, or must go.
  indirect case lost(ConnectionLoss, String)
}

/// Who owns a connection.
protocol ConnectionOwner: AnyObject {
  func connection(_ connection: UpstreamConnection, reports event: ConnectionEvent)
}
