import ByteStreams
import Inbox

@testable import Replication

/// The connection of a holder to its upstream.
extension SimulatedGateway {
  /// Called when the upstream sends a push.
  func push() {
    let last = log.last?.id ?? .none
    let number = last.push + 1
    guard let term = terms.last?.term.value else { return }
    let cursor = Cursor(epoch: Epoch(epoch), term: term, sequence: number)
    let entry = PushEntry(id: PushEntryID(push: number, count: 0), content: world.render(cursor, at: self))
    submit(entry) { [unowned self] in try self.show(more: [entry]) }
  }

  func useUpstream() throws {
    guard mayWrite else { return }
    if !isSocketOpen {
      guard let socketTime, now >= socketTime else { return }
      if isSilent { throw Violation(description: "a gateway that drains connects after its deadline") }
      isSocketOpen = true
      world.opened(self)
    }
    guard world.isBusy else { return try sendMessages() }
    if Int.random(in: 0..<100, using: &world.random) < 40 { push() }
    try sendMessages()
  }

  private func sendMessages() throws {
    for (message, time) in written where now >= time {
      submit(.settled(message, .confirmed))
      written.removeAll { $0.message == message }
    }
    guard !intending, let last = state.queue.last, last > state.intended else { return }
    let messages = state.queue.filter { $0 > state.intended }
    intending = true
    let write: () throws -> Void = { [unowned self] in
      self.intending = false
      for message in messages {
        guard self.mayWrite, self.isSocketOpen else {
          if self.state.outcome(message) == .queued { self.submit(.settled(message, .unknown)) }
          continue
        }
        guard let beat = self.lastConfirmedBeat, self.now < beat + self.times.lease - self.times.margin else {
          throw Violation(description: "a write began after the deadline")
        }
        try self.world.sent(message, by: self)
        self.written.append((message, self.now + .milliseconds(100)))
      }
    }
    if bug == .intentNotAwaited {
      state.intended = last
      try write()
    } else {
      submit(.intended(through: last), then: write)
    }
  }
}
