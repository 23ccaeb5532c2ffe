import ByteStreams
import Outbox
import Reactor
import Synchronization
import Testing
import UpstreamSession

@testable import Upstream

@Suite(.serialized) struct DeliveryNotifierTests {
  @Test func notifiesWhenAMessageIsConfirmed() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url)
    let waiter = try await NotifierWaiter(session)
    session.post("order")
    try await session.until("the notifier has notified after the confirmation") {
      waiter.statesAtNotifications.contains(.confirmed)
    }
    try await session.finish()
    upstream.stop()
  }

  @Test func notifiesWhenAMessageExpires() async throws {
    let upstream = try ScriptedUpstream(.silence)
    let session = try SessionFixture(upstream.url)
    let waiter = try await NotifierWaiter(session)
    session.post("soon gone", ttl: .milliseconds(10))
    session.post("waits", ttl: .hours(1))
    try await session.until("the notifier has notified after the end") {
      waiter.statesAtNotifications.contains(.expired)
    }
    #expect(session.handle.isSettled(1) && !session.handle.isSettled(2))
    #expect(session.handle.isSettled(3), "never posted")
    try await session.finish()
    upstream.stop()
  }

  @Test func writtenIsFinalWithoutConfirmation() async throws {
    let upstream = try ScriptedUpstream(.listen)
    let session = try SessionFixture(upstream.url) { $0.outbox.confirms = false }
    let waiter = try await NotifierWaiter(session)
    session.post("order")
    try await session.until("the notifier has notified after the write") {
      waiter.statesAtNotifications.contains(.written)
    }
    #expect(session.handle.isSettled(1))
    try await session.finish()
    upstream.stop()
  }
}

/// Listens to a session's notifier on the session's loop, and records the state of the first delivery at each
/// notification.
private final class NotifierWaiter: Sendable {
  private let states = Mutex<[DeliveryState?]>([])

  var statesAtNotifications: [DeliveryState?] { states.withLock { $0 } }

  init(_ session: SessionFixture) async throws {
    let handle = session.handle
    session.loop.submit { context in
      let listener = NotifierListener(handle) { state in self.states.withLock { $0.append(state) } }
      let registered = Notifier.Listener(context.makeSignal(for: listener))
      registered.isWaiting.store(true, ordering: .sequentiallyConsistent)
      handle.deliveryNotifier.add(registered)
      return nil
    }
    try await session.until("a listener waits") { handle.deliveryNotifier.hasWaiters }
  }
}

private final class NotifierListener: SignalTarget {
  private let handle: SessionHandle
  private let note: (DeliveryState?) -> Void

  init(_ handle: SessionHandle, note: @escaping (DeliveryState?) -> Void) {
    self.handle = handle
    self.note = note
  }

  func signalled() { note(handle.deliveryState(1)) }
}
