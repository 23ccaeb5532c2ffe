import ByteStreams
import Calls
import Events
import Outbox
import Reactor
import Threading
import UpstreamProtocol
import UpstreamSession

/// The state that other loops use if the messages of the upstream are events.
struct EventState: Sendable {
  /// An acknowledgement that the upstream has requested and that a client may send once.
  struct Owed: Sendable {
    let connection: Generation
    let namespace: [UInt8]
    let id: UInt64
  }

  /// Maximum number of acknowledgements that clients may still send. Above this number, the oldest is forgotten. If a
  /// server requests an acknowledgement for each event and clients send it seconds later, a few hundred of them wait at
  /// a time.
  static var owedLimit: Int { 4_096 }

  /// The connection to which `namespaces` and `maximumPayload` belong: the sending connection or, if none sends, the
  /// connection that reported namespaces last.
  var connection = Generation.none
  var namespaces: [NamespaceStatus] = []
  /// Maximum size of a message that the server accepts; nil if it is not known.
  var maximumPayload: Int?
  var owed: [[UInt8]: Owed] = [:]
  /// The tokens of `owed`, oldest first. Tokens whose acknowledgements were sent may still be among them.
  var order = RingDeque<[UInt8]>(filler: [])
  /// Acknowledgements of clients that may still be in the queue, by the numbers of their messages. If an
  /// acknowledgement ends in the queue, clients may send it again.
  var queued: [UInt64: (token: [UInt8], owed: Owed)] = [:]
  /// When `queued` has this size, the entries whose messages have left the queue are removed.
  var nextPurge = EventState.purgeMinimum
  static var purgeMinimum: Int { 256 }
}

extension SessionHandle {
  /// How clients write events; nil if messages are not events.
  package var eventFormat: (any EventFormat)? {
    hasEvents ? guarded.withLock { $0.eventFormat } : nil
  }

  /// The states of the session's namespaces on the sending connection. If none sends, their states on the connection
  /// that reported them last.
  package var namespaces: [NamespaceStatus] { guarded.withLock { $0.events?.namespaces ?? [] } }

  /// Maximum size of a message that the server of this connection accepts; nil if it is not known.
  package var maximumPayload: Int? { guarded.withLock { $0.events?.maximumPayload } }

  /// The state of a namespace that is not connected on the sending connection; nil if it is connected, or if no
  /// connection sends.
  package func missing(namespace: [UInt8]) -> NamespaceStatus? {
    guarded.withLock { guarded in
      guard guarded.outbox.hasSendingConnection else { return nil }
      guard let status = guarded.events?.namespaces.first(where: { Array($0.name.utf8) == namespace }) else {
        // The sending connection does not have this namespace. The connection that will replace it joins the namespace.
        return NamespaceStatus(
          name: String(decoding: namespace, as: UTF8.self), isRequired: true, state: .connecting)
      }
      return status.state == .connected ? nil : status
    }
  }

  // MARK: Acknowledgements of clients

  package enum AcknowledgementReceipt: Sendable {
    case posted(PostReceipt)
    /// The token is unknown: it was used, or its connection has ended or been replaced.
    case gone
    /// The connection that the token belongs to is a successor that does not send yet.
    case notYet
  }

  /// Queues the acknowledgement with this token, once. Callable from any loop.
  package func acknowledge(
    _ token: [UInt8], _ parts: EventParts, timeToLive: TimeSpan?, by client: UInt64 = 0, now: MonotonicTime
  ) -> AcknowledgementReceipt {
    // The record is written while the lock is not held, since it may be large. So the token is checked again
    // afterwards.
    let (found, current) = guarded.withLock { ($0.events?.owed[token], $0.events?.connection) }
    guard let owed = found, let current, owed.connection >= current else { return .gone }
    guard owed.connection == current else { return .notYet }
    var parts = parts
    parts.kind = .acknowledgement
    parts.id = owed.id
    parts.connection = owed.connection.number
    parts.namespace = owed.namespace
    let message = ByteSlice(ByteString(parts.record))
    let (receipt, signal) = update(at: now) { guarded -> (AcknowledgementReceipt, Signal?) in
      guard guarded.events?.owed[token] != nil, guarded.events?.connection == owed.connection else {
        return (.gone, nil)
      }
      // The acknowledgement is not stored: another process would have other connections, so that process could not use
      // the acknowledgement. The message reports its end, so that clients can send the acknowledgement again if it was
      // not sent.
      let result = guarded.outbox.enqueue(
        message, kind: .text, timeToLive: timeToLive, reportsEnd: true, by: client, now: now)
      if case .queued(let sequence, _) = result {
        guarded.events?.noteQueued(sequence, token, owed, in: guarded.outbox.ledger)
      }
      return (.posted(PostReceipt(result: result, nextAttempt: guarded.nextAttempt)), guarded.signal(after: result))
    }
    signal?.notify()
    return receipt
  }

  // MARK: Calls

  /// Emits an event, and registers a call for its acknowledgement. The id of the event is the number of its delivery
  /// plus a base that depends on the term. Callable from any loop.
  package func call(
    event record: [UInt8], timeToLive: TimeSpan, by client: UInt64 = 0, now: MonotonicTime
  ) -> CallReceipt {
    var record = record
    return call(token: ByteString([]), timeToLive: timeToLive, by: client, now: now) { sequence in
      let id = self.resumed.callIDBase &+ sequence
      EventRecord.set(id: id, in: &record)
      return (CallID(acknowledgement: id), ByteSlice(ByteString(record)))
    }
  }

  // MARK: The session's loop

  func show(_ namespaces: [NamespaceStatus], maximumPayload: Int?, on connection: Generation) {
    guarded.withLock { guarded in
      guarded.events?.connection = connection
      guarded.events?.namespaces = namespaces
      guarded.events?.maximumPayload = maximumPayload
    }
    noteStateChange()
  }

  /// The connection has ended, so the acknowledgements for its events cannot be sent any more.
  func forgetConnection(_ connection: Generation) {
    guarded.withLock { $0.events?.forget(connection) }
  }

  func expectAcknowledgement(of event: EventRecord, from connection: Generation) {
    let token = [UInt8](copying: event.token)
    let owed = EventState.Owed(
      connection: connection, namespace: [UInt8](copying: event.namespace), id: event.id)
    guarded.withLock { $0.events?.expect(token, owed) }
  }

  /// The acknowledgement of an event that was sent with an id has arrived. Returns whether its call still exists.
  func receive(_ reply: ProtocolReply, now: MonotonicTime) -> Bool {
    receiveReply(to: CallID(acknowledgement: reply.id), reply.document, canBeLate: reply.isEmbeddable, now: now)
  }

  /// The namespace of these calls has ended.
  func endCalls(withReplies ids: [UInt64]) {
    guard !ids.isEmpty else { return }
    endCalls(ids.map(CallID.init(acknowledgement:)))
  }
}

extension SessionHandle.Guarded {
  /// Messages have ended in the queue. If some of them are acknowledgements, clients may send these again while the
  /// connection of their events sends.
  mutating func restoreAcknowledgements(_ ended: [UInt64]) {
    guard events?.queued.isEmpty == false else { return }
    for sequence in ended {
      guard let (token, owed) = events?.queued.removeValue(forKey: sequence), owed.connection == events?.connection
      else { continue }
      events?.expect(token, owed)
    }
  }
}

extension EventState {
  fileprivate mutating func expect(_ token: [UInt8], _ new: Owed) {
    guard owed.updateValue(new, forKey: token) == nil else { return }
    order.append(token)
    while !order.isEmpty, owed.count > Self.owedLimit || owed[order[order.front]] == nil {
      owed[order[order.front]] = nil
      order.removeFirst()
    }
    // An old acknowledgement at the front that no client sends would keep all later tokens in `order`, even used
    // tokens.
    guard order.count > 2 * Self.owedLimit else { return }
    var rest = RingDeque<[UInt8]>(filler: [])
    for index in order.front..<order.end where owed[order[index]] != nil { rest.append(order[index]) }
    order = rest
  }

  /// Records that the acknowledgement with this token is in the queue.
  fileprivate mutating func noteQueued(
    _ sequence: UInt64, _ token: [UInt8], _ sent: Owed, in ledger: DeliveryLedger
  ) {
    owed[token] = nil
    if queued.count >= nextPurge {
      queued = queued.filter { ledger.state(of: $0.key) == .queued }
      nextPurge = max(Self.purgeMinimum, 2 * queued.count)
    }
    queued[sequence] = (token, sent)
  }

  /// Removes the acknowledgements for events of a connection that has ended, and marks its namespaces as disconnected.
  fileprivate mutating func forget(_ ended: Generation) {
    if !owed.isEmpty {
      owed = owed.filter { $0.value.connection != ended }
      if owed.isEmpty { order = RingDeque(filler: []) }
    }
    if !queued.isEmpty { queued = queued.filter { $0.value.owed.connection != ended } }
    guard connection == ended else { return }
    for index in namespaces.indices where namespaces[index].state == .connected {
      namespaces[index].state = .disconnected
    }
    maximumPayload = nil
  }
}
