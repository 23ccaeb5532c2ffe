import ByteStreams
import Continuity
import Events
import Journal
import UpstreamProtocol

/// Passes on a push that was rendered ahead. The argument is as in `UpstreamSink.received`.
package typealias RenderedPush = @Sendable (Continuation?) -> Void

/// Receives the pushes of a session. Called on the session's loop.
package protocol UpstreamSink: AnyObject, Sendable {
  /// A push has arrived. `payload` and `topic` are valid only during the call. `topic` is empty if the push has no
  /// topic. `now` is wall-clock time in milliseconds.
  func received(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64)
  /// An event has arrived. `event` is valid only during the call.
  ///
  /// - Parameter continuation: the data from which another process would continue after this event; nil if the session
  ///   is not stored.
  func received(_ event: EventRecord, _ continuation: Continuation?, now: Int64)
  /// Renders a large push before it is passed on. Called on another thread than the session's loop. Returns a function
  /// that the loop calls once, instead of `received`; nil if the sink renders nothing.
  func rendered(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) -> RenderedPush?
  /// Renders a large event, like the function for pushes.
  func rendered(_ event: EventRecord, now: Int64) -> RenderedPush?
  /// The ticket of the last push or event; nil if pushes need not be stored. When this ticket is stored, everything
  /// that was received so far is stored.
  var lastTicket: JournalTicket? { get }
  /// Stores the cursor from which a new connection resumes, together with the next push. Called only if the session is
  /// stored.
  func resumes(from cursor: [UInt8]?)
  /// Stores these changes together with the next push. Called only if the session is stored.
  func remembers(_ changes: [MemoryChange])
  /// Stores the changes that were not stored together with a push.
  func storeRemembered()
  /// A ready connection has ended: pushes may be missing from here on.
  func connectionLost()
  /// The state of the session, or the desired state, has changed. May be called from any thread.
  func stateChanged()
  /// The session has ended for good. Called once.
  func sessionEnded()
  /// Whether clients wait for pushes now, or receive them in a stream. If so, an on-demand session stays open.
  var hasReaders: Bool { get }
  /// Whether messages posted inside `received` are written before the next push is read, each in its own write. If so,
  /// a message that a client posts in response to a push is sent even if a protocol violation follows that push. False
  /// favours throughput.
  var flushesAfterEachMessage: Bool { get }
}

extension UpstreamSink {
  package func received(_ event: EventRecord, _ continuation: Continuation?, now: Int64) {}
  package func rendered(
    _ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64
  ) -> RenderedPush? { nil }
  package func rendered(_ event: EventRecord, now: Int64) -> RenderedPush? { nil }
  package var lastTicket: JournalTicket? { nil }
  package var flushesAfterEachMessage: Bool { false }
  package var hasReaders: Bool { false }
  package func resumes(from cursor: [UInt8]?) {}
  package func remembers(_ changes: [MemoryChange]) {}
  package func storeRemembered() {}
  package func stateChanged() {}
  package func sessionEnded() {}
}
