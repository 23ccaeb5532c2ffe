import ByteStreams

/// Connections as the outbox sees them: they begin, are confirmed by pongs, and end.
extension Outbox {
  /// A connection is ready: it may take messages.
  package mutating func startSending() {
    precondition(flight == nil, "two connections send at once")
    flight = Flight(first: firstUntaken)
  }

  private var firstUntaken: UInt64 { takenEnd < ring.end ? ring[takenEnd].sequence : ledger.last + 1 }

  /// The connection takes nothing more; what it has is on its way, or lost: `settle()` will tell.
  package mutating func stopSending(lastIsPoison: Bool = false) {
    guard let ended = flight else { return }
    if retiring != nil { settle() }
    flight = nil
    retiring = ended
    if lastIsPoison { poisonLast() }
    endWaiting(as: .expired) { $0.isImmediate }
  }

  /// Messages of the sending connection that no barrier stands behind.
  package var unguarded: UInt64 {
    guard settings.confirms, let flight else { return 0 }
    return flight.last - flight.guarded
  }

  /// A ping with this counter goes out behind everything that the connection has taken: the one that sends, or the one that
  /// retires and says its goodbye.
  package mutating func barrier(_ counter: UInt64, retired: Bool = false) {
    guard settings.confirms, var guarded = retired ? retiring : flight, guarded.last > guarded.guarded else { return }
    guarded.guarded = guarded.last
    guarded.barriers.append(Barrier(counter: counter, through: guarded.last))
    if retired { retiring = guarded } else { flight = guarded }
  }

  /// A pong came on the connection that sends, or on the one that retires: its peer has all that stood before the ping.
  /// Answers how many messages that confirms.
  @discardableResult
  package mutating func confirm(_ counter: UInt64, retired: Bool = false) -> Int {
    guard var answered = retired ? retiring : flight else { return 0 }
    var through: UInt64 = 0
    while !answered.barriers.isEmpty, answered.barriers[answered.barriers.front].counter <= counter {
      through = answered.barriers[answered.barriers.front].through
      answered.barriers.removeFirst()
    }
    var count = 0
    if through >= answered.first {
      for sequence in answered.first...through where ledger.state(of: sequence) == .written {
        ledger.set(sequence, to: .confirmed)
        count += 1
      }
      answered.first = through + 1
    }
    if retired { retiring = answered } else { flight = answered }
    if keepsWritten, count > 0 { releaseConfirmed(through: through) }
    return count
  }

  private mutating func releaseConfirmed(through sequence: UInt64) {
    for place in ring.front..<writtenEnd where ring[place].sequence <= sequence { release(place) }
    popFront()
  }

  /// The connection that stopped sending is gone: what the kernel did not take goes back to its place in the queue, what
  /// nobody confirmed is `unknown`, or goes again. Messages that nobody may wait for any longer end here.
  package mutating func settle() {
    guard let ended = retiring else { return }
    retiring = nil
    if settings.confirms, ended.last >= ended.first, !keepsWritten {
      for sequence in ended.first...ended.last where ledger.state(of: sequence) == .written {
        ledger.set(sequence, to: .unknown)
      }
    }
    // A successor that has taken messages owns the front of the ring: then nothing of the old connection is left there.
    if let successor = flight, successor.last >= successor.first { return }
    putBack()
    if flight != nil { flight = Flight(first: firstUntaken) }
  }

  private mutating func putBack() {
    for place in ring.front..<takenEnd where ring[place].payload != nil {
      let wasWritten = place < writtenEnd
      if wasWritten {
        kept &-= 1
        messages &+= 1
        guard Int(ring[place].attempts) < settings.maximumAttempts, !ring[place].isImmediate else {
          finish(place, as: .unknown)
          continue
        }
        ledger.set(ring[place].sequence, to: .queued)
      } else {
        // It never reached the kernel as a whole, and so has not used up an attempt.
        ring[place].attempts &-= 1
        if ring[place].isImmediate {
          finish(place, as: .expired)
          continue
        }
      }
      waiting &+= 1
    }
    writtenEnd = ring.front
    takenEnd = ring.front
    popFront()
    reindexWaiting()
  }

  /// The upstream closed with 1009: the message it saw last is too large for it and would end every connection.
  private mutating func poisonLast() {
    guard lastWritten > 0, ledger.state(of: lastWritten) == .written else { return }
    ledger.set(lastWritten, to: .rejected)
    guard keepsWritten else { return }
    for place in ring.front..<writtenEnd where ring[place].sequence == lastWritten { release(place) }
    popFront()
  }
}
