import ByteStreams
import Journal
import UpstreamSession

/// Acknowledgements of a Socket.IO upstream's events that are sent when the events are stored (`acks: stored`), in the
/// order of the events.
struct DelayedAcknowledgements {
  struct Acknowledgement {
    let payload: ByteString
    let namespace: String
    let connection: Generation
    /// The ticket of the event; nil if the event has not been passed on yet.
    var ticket: JournalTicket?
  }

  /// At this number, reading from the upstream pauses. No acknowledgement is dropped, so the events of the last read
  /// may exceed the limit. When a slow disk delays events, `store.pending_bytes` limits how many are pending. A server
  /// that requests an acknowledgement for each event pauses by itself long before.
  static var limit: Int { 4_096 }

  private var queue = RingDeque(filler: Acknowledgement(payload: ByteString([]), namespace: "", connection: .none))
  /// The number of acknowledgements without a ticket, which are the last in the queue.
  private var unnumbered = 0

  var isEmpty: Bool { queue.isEmpty }
  var isFull: Bool { queue.count >= Self.limit }

  mutating func append(_ payload: ByteString, of namespace: String, on connection: Generation) {
    queue.append(Acknowledgement(payload: payload, namespace: namespace, connection: connection))
    unnumbered += 1
  }

  /// Called when all events have been passed on. Sets the ticket of the acknowledgements without a ticket; nil if no
  /// event has to be stored.
  mutating func setTicket(_ ticket: JournalTicket?) {
    for index in (queue.end - unnumbered)..<queue.end { queue[index].ticket = ticket ?? JournalTicket(0) }
    unnumbered = 0
  }

  func isFirstStored(in journal: any SessionJournal) -> Bool {
    guard !queue.isEmpty, let ticket = queue[queue.front].ticket else { return false }
    return journal.outcome(of: ticket) == .stored
  }

  mutating func takeFirst(ifStoredIn journal: any SessionJournal) -> Acknowledgement? {
    guard isFirstStored(in: journal) else { return nil }
    defer { queue.removeFirst() }
    return queue[queue.front]
  }

  mutating func connectionEnded(_ connection: Generation) {
    guard !queue.isEmpty else { return }
    var rest = DelayedAcknowledgements()
    for index in queue.front..<queue.end where queue[index].connection != connection {
      rest.queue.append(queue[index])
      if queue[index].ticket == nil { rest.unnumbered += 1 }
    }
    self = rest
  }
}
