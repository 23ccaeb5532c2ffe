import Access
import ByteStreams
import HTTPServer
import Host
import Inbox
import Metrics
import Reactor
import Sessions
import Upstream
import UpstreamSession

/// The stream of one client: a position in the log of pushes, which advances at the pace of the client. A slow client
/// falls behind in the log and uses no more memory. It gets a gap if retention overtakes it.
final class MessageStream: Source {
  /// The content of a stream, apart from its position. Streams with equal options at the same position send the same
  /// bytes.
  struct Options: Equatable {
    var format: StreamFormat
    var filter: TopicFilter?
    /// Whether messages have the size of their payload instead of the payload.
    var omitsData = false
  }

  private let api: API
  private let session: Session
  private let options: Options
  /// With a filter, the position also advances past the pushes that do not match.
  private var start: ReadStart
  /// nil only without credentials to check.
  private let grant: Grant?
  private var end: MonotonicTime
  private var nextHeartbeat: MonotonicTime
  private var hasBegun = false
  /// Whether the stream waits for new data. If so, the client has kept up, and the latency of the next push is
  /// measured.
  private var isWaiting = false
  /// The client's position, if known. With a filter, a batch may end after the position of its last message.
  private var sentCursor: Cursor?
  /// The part of the session's state that was sent; nil if the stream does not send the state.
  private var sentState: SentState?
  /// The wait before the stream can read: this gateway's copy of a remote session does not know the stream's position
  /// yet.
  private var awaited: FollowedCopy.Wait?

  private struct SentState {
    /// The revision of the state (`SessionHandle.stateRevision`) that was sent last.
    var revision = UInt64.max
    /// The number of the last transition that was sent; nil before the first event.
    var transition: UInt64?
  }

  init(
    _ api: API, _ session: Session, from start: ReadStart, _ options: Options, withState: Bool, for grant: Grant?,
    until end: MonotonicTime, awaiting copy: FollowedCopy.Wait?
  ) {
    awaited = copy
    self.api = api
    self.session = session
    self.start = start
    self.options = options
    self.grant = grant
    self.end = end
    nextHeartbeat = end
    if withState {
      sentState = SentState()
      session.inbox.beginReadingState()
    }
    session.inbox.beginStream()
    api.common.metrics.openStreams.add(1)
  }

  var principal: UInt64 { API.principal(of: grant) }

  func advance(at now: MonotonicTime) -> WaitStep {
    if hasNewState || findMessages() || awaited != nil && session.inbox.hasEnded { return .ready }
    isWaiting = true
    return .wait(session.inbox.notifier, until: min(nextHeartbeat, end))
  }

  private var hasNewState: Bool { sentState.map { $0.revision != session.upstream.stateRevision } ?? false }

  /// Moves past the pushes that do not match. Returns whether there is new data to read.
  private func findMessages() -> Bool {
    if let awaited {
      guard !session.inbox.hasEnded, awaited.isOver(in: session.inbox) else { return false }
      self.awaited = nil
    }
    guard let filter = options.filter else { return session.inbox.hasNewData(after: start) }
    return session.inbox.hasNewData(after: &start, matching: filter)
  }

  func next(at now: MonotonicTime, into content: inout ResponseContent) -> SourceStep {
    let isRevoked = isRevoked
    let isEnding = isRevoked || now >= end
    if !hasBegun {
      hasBegun = true
      options.format.writeBeginning(start, into: &content.text)
      if start.gap == nil { sentCursor = start.cursor }
    }
    var hasMore = false
    if !isRevoked, !hasExpired(at: now), findMessages() { hasMore = appendBatch(to: &content) }
    isWaiting = false
    // The last position is sent before the end, even by a stream that ends before its first heartbeat. Otherwise a
    // client whose topics match nothing would return to the same position until retention overtakes it.
    if isEnding ? sentCursor != start.cursor : content.isEmpty && now >= nextHeartbeat {
      options.format.writeHeartbeat(start.cursor, into: &content.text)
      sentCursor = start.cursor
    }
    if !content.isEmpty { nextHeartbeat = now + api.common.settings.delivery.streamHeartbeat }
    if !isRevoked, hasNewState { appendState(to: &content.text, at: now) }
    // If the inbox has ended, its pushes were removed with the session, or another inbox has them. A client that
    // reconnects continues in that inbox.
    if isEnding || session.inbox.hasEnded { return .end }
    return hasMore ? .more : .wait
  }

  func writeLast(at now: MonotonicTime, into content: inout ResponseContent) {
    // Ends like an expired stream: with the pushes that have arrived, and the position.
    end = min(end, now)
    _ = next(at: now, into: &content)
  }

  /// Whether the credentials have been removed from their file. Checked at each batch and heartbeat.
  private var isRevoked: Bool { grant?.isRevoked ?? false }

  /// Whether the credentials have expired. A client that reads slowly may take its next batch only long after that.
  private func hasExpired(at now: MonotonicTime) -> Bool {
    // The stream ends no later than the credentials expire.
    now >= end && grant?.isExpired(at: ProcessInformation.wallClockMilliseconds()) ?? false
  }

  /// Appends a batch of pushes. Returns whether more can be sent now.
  private func appendBatch(to content: inout ResponseContent) -> Bool {
    let inbox = session.inbox
    let key = PreparedBatches.Key(
      inbox: inbox.epoch, start: start, options: options, revision: inbox.revision)
    let batch = api.preparedBatches.append(key, to: &content) {
      inbox.read(
        after: start, limit: StreamLimits.batchMessages, maxBytes: StreamLimits.batchBytes, matching: options.filter)
    }
    start = ReadStart(batch.cursor)
    sentCursor = options.filter == nil ? start.cursor : nil
    api.common.metrics.deliveredMessages.add(batch.messages)
    if isWaiting, let arrival = batch.arrival { api.latencies.note(.pushToStream, since: arrival) }
    return batch.hasMore
  }

  /// Sends each transition since the last event, or the state alone if only the desired state has changed. A slow
  /// client gets the transitions that the session still remembers (`TransitionHistory.limit`). Transitions have no
  /// position.
  private func appendState(to text: inout ByteQueue, at now: MonotonicTime) {
    let revision = session.upstream.stateRevision
    let (snapshot, replica): (SessionSnapshot, SessionReplica?)
    switch ShownSession(session, api.common) {
    case .local(let shown, let part): (snapshot, replica) = (shown, part)
    case .remote(let replica):
      options.format.write(replica, into: &text)
      sentState = SentState(revision: revision, transition: 0)
      return
    }
    let history = snapshot.status.history
    var news = history[...]
    if let sent = sentState?.transition {
      news = history.drop { $0.sequence <= sent }
    } else {
      // A stream begins with the current state only.
      news = news.suffix(1)
    }
    for transition in news {
      options.format.write(snapshot, after: transition, of: session, replica, for: grant, at: now, into: &text)
    }
    if news.isEmpty {
      options.format.write(snapshot, after: history.last, of: session, replica, for: grant, at: now, into: &text)
    }
    sentState = SentState(revision: revision, transition: history.last?.sequence ?? 0)
  }

  func close() {
    if sentState != nil { session.inbox.endReadingState() }
    session.inbox.endStream()
    api.common.metrics.openStreams.add(-1)
  }
}

/// Limits of one batch. This is the memory that a stream takes if its client does not read.
enum StreamLimits {
  /// Bytes of content, or one larger message.
  static var contentBytes: Int { 64 << 10 }
  /// Bytes of messages. With the text around each of 256 messages, they fit in `contentBytes`, unless they have many
  /// line breaks.
  static var batchBytes: Int { 48 << 10 }
  static var batchMessages: Int { 256 }
}
