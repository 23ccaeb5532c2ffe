import ByteStreams
import UpstreamSession

/// How connections affect the outbox: they start to send, confirm messages by pongs, and end.
extension Outbox {
  /// Called when a connection is ready: it may take messages from now on.
  ///
  /// - Parameter confirms: whether the pings of the connection confirm messages; nil if the settings decide.
  package mutating func startSending(on connection: Generation, confirms: Bool? = nil) {
    precondition(flight == nil, "two connections send at once")
    // Messages that may be sent again need a confirmation on every connection.
    beginFlight(on: connection, confirms: keepsWritten || confirms ?? settings.confirms)
    isBlocked = false
    resume()
  }

  private mutating func beginFlight(on connection: Generation, confirms: Bool) {
    let first = firstUntaken
    flight = Flight(connection, first: first, confirms: confirms)
    ledger.setConfirms(confirms, from: first)
  }

  private var firstUntaken: UInt64 { takenEnd < ring.end ? ring[takenEnd].sequence : ledger.last + 1 }

  /// Returns the progress of a message.
  package func progress(of sequence: UInt64) -> DeliveryProgress {
    switch ledger.state(of: sequence) {
    case .queued: sequence >= firstUntaken ? .waiting : .taken
    case .written, .confirmed, .unknown, nil: .taken
    case .expired, .replaced, .rejected: .notSent
    }
  }

  /// Called when the connection takes no more messages. The messages that it has taken may still arrive. `settle`
  /// decides their states.
  ///
  /// - Parameters:
  ///   - closedAsTooBig: the upstream closed with 1009, 'message too big'.
  ///   - partiallyWritten: the message that the kernel has accepted only in part.
  package mutating func stopSending(closedAsTooBig: Bool = false, partiallyWritten: UInt64? = nil) {
    guard let ended = flight else { return }
    settle()
    flight = nil
    retiring = ended
    if closedAsTooBig { rejectLargest(partiallyWritten: partiallyWritten) }
    if !isPaused { endImmediate() }
  }

  /// Called when the kernel accepts nothing more for now. Messages from `sequence` on return to their positions in the
  /// queue and keep their time to live: the kernel has accepted no byte of them. A message with time to live 0 may not
  /// be queued, so it ends.
  package mutating func block(returning sequence: UInt64?) {
    isBlocked = true
    if let sequence { returnToQueue(from: sequence) }
    endImmediate()
  }

  /// Returns messages from `sequence` on to the queue although the connection is not blocked: they are sent in the next
  /// turn.
  package mutating func returnToQueue(from sequence: UInt64) {
    let end = takenEnd
    var count = 0
    while takenEnd > writtenEnd, ring[takenEnd - 1].sequence >= sequence {
      takenEnd &-= 1
      guard let payload = ring[takenEnd].payload else { continue }
      count += 1
      if ring[takenEnd].hasReply {
        finish(takenEnd, as: .confirmed, because: nil)
        continue
      }
      ring[takenEnd].attempts &-= 1
      waiting &+= 1
      waitingBytes &+= payload.count
      index(takenEnd)
    }
    popFront()
    bucket?.refund(count)
    flight?.returnToQueue(from: sequence)
    waitingStart = takenEnd
    replaceOlder(from: takenEnd, before: end)
  }

  // MARK: Barriers

  /// The number of messages on the sending connection that no barrier follows yet; 0 if no further barrier may be sent.
  package var messagesWithoutBarrier: UInt64 {
    guard let flight, flight.confirms, flight.barriers.count < settings.maximumBarriers else { return 0 }
    return flight.last - flight.lastWithBarrier
  }

  /// Records that a ping with this counter follows everything that the connection has taken. Such a ping is a
  /// *barrier*: its pong confirms all messages before it. The connection is the sending connection, or the retiring
  /// connection, which sends this ping before its close frame.
  package mutating func barrierSent(_ counter: UInt64, on connection: Generation) {
    // A liveness ping may be sent when no further barrier is allowed. It is not recorded as a barrier, and a later
    // barrier confirms the messages before it.
    if isRetiring(connection) {
      retiring?.appendBarrier(counter, atMost: .max)
    } else if flight?.connection == connection {
      flight?.appendBarrier(counter, atMost: isPaused ? .max : settings.maximumBarriers)
    }
  }

  /// The previous sending connection, until its messages are settled.
  package var retiringConnection: Generation? { retiring?.connection }

  /// Whether this connection has stopped sending and its messages are not settled yet.
  package func isRetiring(_ connection: Generation) -> Bool { retiring?.connection == connection }

  /// Called when a pong arrived on this connection: the peer has received everything before the ping. Returns how many
  /// messages the pong confirms.
  @discardableResult
  package mutating func confirm(_ counter: UInt64, on connection: Generation) -> Int {
    oldestConfirmed = nil
    let confirmed: (messages: ClosedRange<UInt64>, taken: MonotonicTime)?
    if isRetiring(connection) {
      confirmed = retiring?.confirm(counter)
    } else if flight?.connection == connection {
      confirmed = flight?.confirm(counter)
    } else {
      confirmed = nil
    }
    guard let confirmed else { return 0 }
    let (messages, taken) = confirmed
    let count = ledger.confirmAll(from: messages.lowerBound, through: messages.upperBound)
    if count > 0 { oldestConfirmed = taken }
    if keepsWritten, count > 0 { releaseConfirmed(through: messages.upperBound) }
    return count
  }

  private mutating func releaseConfirmed(through sequence: UInt64) {
    for position in ring.front..<writtenEnd where ring[position].sequence <= sequence { release(position) }
    popFront()
  }

  // MARK: Ends of connections

  /// Called when the connection that stopped sending has ended. Messages that the kernel did not accept return to their
  /// positions in the queue. Unconfirmed messages become `unknown`, or are queued again. Messages that may no longer be
  /// queued end.
  ///
  /// `partiallyWritten`: the message that the kernel has accepted only in part. The upstream cannot have received it.
  package mutating func settle(partiallyWritten: UInt64? = nil) {
    guard let ended = retiring else { return }
    retiring = nil
    if ended.confirms, ended.last >= ended.first, !keepsWritten {
      ledger.loseAll(from: ended.first, through: ended.last)
    }
    // If a successor has taken messages, the front of the ring belongs to the successor, and no message of the old
    // connection is left in the ring.
    if let successor = flight, successor.last >= successor.first { return }
    requeue(partiallyWritten: partiallyWritten)
    lowerIntent()
    if let flight { beginFlight(on: flight.connection, confirms: flight.confirms) }
  }

  private mutating func requeue(partiallyWritten: UInt64?) {
    let end = takenEnd
    for position in ring.front..<end where ring[position].payload != nil {
      if position < writtenEnd {
        kept &-= 1
        messages &+= 1
        guard canRetry(position), !ring[position].isImmediate else {
          finish(position, as: .unknown, because: .connectionLost)
          continue
        }
        ledger.reopen(ring[position].sequence)
      } else if ring[position].hasReply {
        finish(position, as: .confirmed, because: nil)
        continue
      } else {
        // The kernel never accepted the whole message, so it was not written.
        ring[position].attempts &-= 1
        if ring[position].sequence == partiallyWritten { ring[position].interruptions &+= 1 }
        if ring[position].isImmediate || !canRetry(position) {
          if ring[position].isImmediate {
            finish(position, as: .expired, because: .notSentAtOnce)
          } else {
            finish(position, as: .rejected, because: .connectionLost)
          }
          continue
        }
      }
      waiting &+= 1
      waitingBytes &+= ring[position].payload?.count ?? 0
    }
    writtenEnd = ring.front
    takenEnd = ring.front
    waitingStart = takenEnd
    popFront()
    reindexWaiting()
    replaceOlder(from: ring.front, before: end)
  }

  /// A message is given up when `maximumAttempts` connections have ended while they carried the message.
  private func canRetry(_ position: Int) -> Bool {
    Int(ring[position].attempts) + Int(ring[position].interruptions) < settings.maximumAttempts
  }

  /// Ends returned messages that a newer queued message with the same replacement key replaces.
  private mutating func replaceOlder(from start: Int, before end: Int) {
    for position in start..<max(start, end) {
      guard position >= ring.front, ring[position].payload != nil, let topic = ring[position].topic,
        topics[topic] != position
      else { continue }
      self.end(position, as: .replaced)
    }
  }

  // MARK: Too large

  /// Records the size of a written message for the connection that wrote it.
  mutating func recordSent(_ sent: Sent) {
    if let first = retiring?.first, let last = retiring?.last, sent.sequence >= first, sent.sequence <= last {
      retiring?.recordSent(sent)
    } else {
      flight?.recordSent(sent)
    }
  }

  /// Called when the upstream closed with 1009. Rejects the largest message in flight, or the last among equally large
  /// messages. This message would end every connection, so it is never sent again.
  private mutating func rejectLargest(partiallyWritten: UInt64?) {
    // A message with a reply has arrived.
    while let first = retiring?.firstLargest, ledger.state(of: first.sequence) == .confirmed {
      retiring?.largest.removeFirst()
    }
    var largest = retiring?.firstLargest
    for position in writtenEnd..<takenEnd where ring[position].sequence == partiallyWritten {
      guard let size = ring[position].payload?.count, size >= largest?.size ?? 0, !ring[position].hasReply else {
        continue
      }
      largest = nil
      reject(ring[position].sequence)
      messages &-= 1
      discardPayload(position)
    }
    if let largest, ledger.state(of: largest.sequence) == .written {
      reject(largest.sequence)
      for position in ring.front..<writtenEnd where ring[position].sequence == largest.sequence { release(position) }
    }
    popFront()
  }

  /// Records that a message was too large. Always reports its end: if the written message was not kept, its
  /// `reportsEnd` is no longer known.
  private mutating func reject(_ sequence: UInt64) {
    ledger.set(sequence, to: .rejected, because: .tooLarge)
    ended.append(sequence)
  }
}

extension Outbox.Flight {
  fileprivate var firstLargest: Outbox.Sent? { largest.isEmpty ? nil : largest[largest.front] }

  /// Records a barrier after the last message, unless pongs confirm nothing, there are `limit` barriers, or a barrier
  /// follows that message already.
  fileprivate mutating func appendBarrier(_ counter: UInt64, atMost limit: Int) {
    guard confirms, last > lastWithBarrier, barriers.count < limit else { return }
    lastWithBarrier = last
    barriers.append(Outbox.Barrier(counter: counter, through: last, taken: taken ?? .distantFuture))
    taken = nil
  }

  /// Removes the barriers up to the barrier with this counter. Returns the messages that its pong confirms, and the
  /// time at which the first of these messages was taken.
  fileprivate mutating func confirm(_ counter: UInt64) -> (messages: ClosedRange<UInt64>, taken: MonotonicTime)? {
    var through: UInt64 = 0
    var taken = MonotonicTime.distantFuture
    while !barriers.isEmpty, barriers[barriers.front].counter <= counter {
      through = barriers[barriers.front].through
      taken = min(taken, barriers[barriers.front].taken)
      barriers.removeFirst()
    }
    guard through >= first else { return nil }
    let confirmed = first...through
    first = through + 1
    while !largest.isEmpty, largest[largest.front].sequence <= through { largest.removeFirst() }
    return (confirmed, taken)
  }

  /// Removes the message `sequence` and all later messages from the flight. A ping that was sent after these messages
  /// confirms none of them.
  fileprivate mutating func returnToQueue(from sequence: UInt64) {
    last = sequence - 1
    lastWithBarrier = min(lastWithBarrier, last)
    if lastWithBarrier == last { taken = nil }
    for position in barriers.front..<barriers.end where barriers[position].through > last {
      barriers[position].through = last
    }
  }

  fileprivate mutating func recordSent(_ sent: Outbox.Sent) {
    while !largest.isEmpty, largest[largest.end - 1].size <= sent.size { largest.removeLast() }
    largest.append(sent)
  }
}
