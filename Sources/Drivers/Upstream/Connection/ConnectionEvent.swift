import ByteStreams
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// An event that a connection reports to its owner.
enum ConnectionEvent {
  // Before the connection is open.
  /// The URL was read, which took this long. Unless the owner discards the connection, the attempt follows.
  indirect case located(WebSocketURL, after: TimeSpan)
  /// All files that the attempt needs have been read.
  case prepared
  case advanced(AttemptPhase)
  indirect case upgraded(ClientHandshake.Agreement)
  // The attempt has ended without `upgraded`, and so has the connection.
  indirect case redirected(WebSocketURL)
  indirect case failed(AttemptReport)

  // After the connection is open.
  /// Bytes have arrived.
  case bytesReceived
  /// Reading resumes after a pause. The bytes that arrived during the pause are read next.
  case readingResumes
  /// A whole message has arrived. `socket.payload` contains it while the event is being reported. `time`: wall-clock
  /// time in milliseconds.
  case message(MessageKind, time: Int64)
  /// A whole large message has arrived, and another thread has processed it. `time` is as for `message`.
  indirect case largeMessage(PreparedMessage, time: Int64)
  /// A pong to the ping with this counter.
  case pong(UInt64)
  /// The upstream's close frame; 1005 if it had no code.
  indirect case closed(code: UInt16, reason: String)
  /// The output has room for this many bytes. Messages appended during the report are written right after it.
  case writable(room: Int)
  /// A flush has written as much of the output as the kernel accepts.
  case flushed(FlushOutcome)
  /// The kernel has accepted every message through this sequence number.
  case written(through: UInt64)
  /// The connection has ended, or must be ended.
  indirect case lost(ConnectionLoss, String)
}

/// How a flush ended, and which messages of the outbox the flush has not sent.
enum FlushOutcome {
  case done
  /// The kernel accepts no more bytes. The messages `returned` were removed from the output, since the kernel has not
  /// begun to accept them.
  case blocked(returned: OutputMarks.Returned?)
  /// The flush has passed as many bytes to the kernel as one turn may pass. The kernel may accept more. The messages
  /// `returned` were removed from the output, since the flush has not begun to pass them.
  case paused(returned: OutputMarks.Returned?)
  /// The connection is broken. `firstUnsent` is the first message that the kernel has not accepted completely; nil if
  /// it has accepted all messages.
  case failed(firstUnsent: UInt64?)

  /// The first message that was not sent; nil if all were.
  var firstUnsent: UInt64? {
    switch self {
    case .done: nil
    case .blocked, .paused: returned?.sequence
    case .failed(let firstUnsent): firstUnsent
    }
  }

  /// The messages that return to the outbox; nil if none returns.
  var returned: OutputMarks.Returned? {
    switch self {
    case .blocked(let returned), .paused(let returned): returned
    case .done, .failed: nil
    }
  }
}
