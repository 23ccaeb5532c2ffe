import ByteStreams
import Journal
import UpstreamProtocol
import UpstreamSession

/// The acknowledgements of pushes that are not sent yet. With `acks: stored` of a Socket.IO upstream and with `when:
/// stored` of `upstream.acknowledge`, an acknowledgement is sent when its push is stored, in the order of the pushes.
///
/// A session has this object only after it has received such a push.
final class DelayedAcknowledgements {
  struct Acknowledgement {
    let frame: ProtocolFrame
    /// The namespace of the event; nil if the upstream has no namespaces.
    let namespace: String?
    let connection: Generation
    /// The ticket of the event; nil if the event has not been passed on yet.
    var ticket: JournalTicket?
  }

  /// The number of acknowledgements at which reading from the upstream pauses. The number is checked only before a
  /// read, and no acknowledgement is dropped, so the events of a single read may take the number above this limit. When
  /// a slow disk delays events, `store.pending_bytes` limits how many events are pending. A server that waits for its
  /// acknowledgements pauses by itself long before this limit.
  static var limit: Int { 4_096 }
  /// The number of bytes at which reading pauses. 4,096 usual acknowledgements are smaller.
  static var byteLimit: Int { 1 << 20 }

  private var queue = DelayedAcknowledgements.emptyQueue
  private static var emptyQueue: RingDeque<Acknowledgement> {
    RingDeque(filler: Acknowledgement(frame: ProtocolFrame(ByteString([])), namespace: nil, connection: .none))
  }
  /// The number of acknowledgements without a ticket, which are the last in the queue.
  private var unnumbered = 0
  /// Bytes of the payloads.
  private var bytes = 0

  var isEmpty: Bool { queue.isEmpty }
  var isFull: Bool { queue.count >= Self.limit || bytes >= Self.byteLimit }

  func append(_ frame: ProtocolFrame, of namespace: String?, on connection: Generation) {
    queue.append(Acknowledgement(frame: frame, namespace: namespace, connection: connection))
    unnumbered += 1
    bytes += frame.payload.count
  }

  /// Called when all events have been passed on. Gives `ticket` to the acknowledgements that have no ticket. `ticket`
  /// is nil if no event has to be stored.
  func setTicket(_ ticket: JournalTicket?) {
    for index in (queue.end - unnumbered)..<queue.end { queue[index].ticket = ticket ?? JournalTicket(0) }
    unnumbered = 0
  }

  func isFirstStored(in journal: any SessionJournal) -> Bool {
    guard !queue.isEmpty, let ticket = queue[queue.front].ticket else { return false }
    return journal.outcome(of: ticket) == .stored
  }

  func takeFirst(ifStoredIn journal: any SessionJournal) -> Acknowledgement? {
    guard isFirstStored(in: journal) else { return nil }
    let first = queue[queue.front]
    queue.removeFirst()
    bytes -= first.frame.payload.count
    return first
  }

  func connectionEnded(_ connection: Generation) {
    guard !queue.isEmpty else { return }
    let all = queue
    (queue, unnumbered, bytes) = (Self.emptyQueue, 0, 0)
    for index in all.front..<all.end where all[index].connection != connection {
      queue.append(all[index])
      bytes += all[index].frame.payload.count
      if all[index].ticket == nil { unnumbered += 1 }
    }
  }
}
