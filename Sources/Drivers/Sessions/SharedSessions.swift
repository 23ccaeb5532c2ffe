import ByteStreams
import Dialing
import Host
import Inbox
import Journal
import Reactor
import RedisStore
import Replication
import Threading
import Upstream

/// Gives each shared session the role that the store reports for it: local, with this gateway as its holder, or
/// followed.
///
/// The store calls this object on the store's loop, so one change is complete before the next change begins. This
/// object holds none of its own locks while it changes a session.
package final class SharedSessions: Sendable {
  private enum Copy {
    /// The present session object has all reported changes.
    case inUse
    /// The store is reading the session again, into a new copy. Readers use the present session object until the new
    /// copy is complete.
    case reading(FollowedLog)
    /// The copy is void: the changes that the store reports now continue a copy that this gateway no longer has.
    case void

    var phase: Phase {
      switch self {
      case .inUse: .inUse
      case .reading: .reading
      case .void: .void
      }
    }
  }

  /// The phase of a copy, without its log.
  private enum Phase {
    case inUse
    case reading
    case void
  }

  private struct State {
    /// The slots, by the names that the store uses.
    var slots: [String: SharedSlot]
    /// Called with each restored session before it executes a request. nil as long as this gateway does not acquire
    /// sessions.
    var willBeLocal: (@Sendable (Session) -> Void)?
  }

  private let state: Locked<State>
  /// The directory of created sessions; nil if clients cannot create sessions.
  private let directory: SessionDirectory?
  private let copies = Locked<[String: Copy]>([:])
  private let usesSecret: @Sendable (String) -> Void

  /// - Parameters:
  ///   - slots: the slots of the configured sessions.
  ///   - usesSecret: called with the secret by which the gateways recognise each other from now on. It may be called
  ///     before `begin`, since the store may already be connected then. The caller must not ignore that call, since the
  ///     store reports the secret again only after some seconds.
  ///   - willBeLocal: see `begin`. nil if this gateway acquires no sessions before `begin`.
  package init(
    _ slots: [SharedSlot], in directory: SessionDirectory? = nil,
    usesSecret: @escaping @Sendable (String) -> Void = { _ in }, willBeLocal: (@Sendable (Session) -> Void)? = nil
  ) {
    self.directory = directory
    self.usesSecret = usesSecret
    state = Locked(
      State(slots: Dictionary(uniqueKeysWithValues: slots.map { ($0.name, $0) }), willBeLocal: willBeLocal))
  }

  private func slot(_ name: String) -> SharedSlot? { state.withLock { $0.slots[name] } }

  /// From now on, this gateway becomes the holder of each session that `store` acquires, and follows the other
  /// sessions. `store` reports to this object.
  ///
  /// - Parameter willBeLocal: called with each restored session before it executes a request.
  package func begin(in store: RedisStore, willBeLocal: @escaping @Sendable (Session) -> Void) {
    let slots = state.withLock { state in
      state.willBeLocal = willBeLocal
      return state.slots
    }
    for (name, slot) in slots { take(slot, name, store) }
  }

  private func take(_ slot: SharedSlot, _ name: String, _ store: RedisStore) {
    slot.copy.follow(name, in: store)
    join(slot, name, store)
  }

  private func join(_ slot: SharedSlot, _ name: String, _ store: RedisStore) {
    if let created = slot.plan.created, !created.mayBeLocal,
      let plan = directory?.profiles.plan(of: created.definition)
    {
      slot.letBeLocal(with: plan.settings, retention: plan.retention)
    }
    store.join(name, mayAcquire: slot.plan.created?.mayBeLocal != false)
  }

  /// Profiles were reloaded: this gateway may now become the holder of sessions whose profile it lacked. Callable from
  /// any thread.
  package func useProfiles(in store: RedisStore) {
    let slots = state.withLock { $0.willBeLocal == nil ? [:] : $0.slots }
    for (name, slot) in slots where slot.plan.created?.mayBeLocal == false { join(slot, name, store) }
  }

  /// Makes other gateways execute the requests, because this gateway is shutting its sessions down. Requests that wait
  /// at this gateway are forwarded.
  package func leaveAll() {
    for slot in state.withLock({ $0.slots }).values { slot.session.move(to: .nowhere) }
  }

  /// Called when this gateway has become the holder.
  ///
  /// - Parameter permission: the permission to write to the upstream; nil if writing is always allowed.
  package func becomeHolder(of name: String, _ opened: OpenedJournal, _ permission: WritePermission? = nil) {
    guard let slot = slot(name) else { return }
    copies.withLock { $0[name] = .void }
    _ = slot.copy.setCurrent(false)
    if !slot.session.isRetired { leave(slot) }
    let willBeLocal = state.withLock { $0.willBeLocal }
    slot.replace(.local(opened, permission)) { willBeLocal?($0) }
    slot.placement.move(
      to: .here, HolderStatus(term: opened.restored.terms.last?.opening ?? 0), while: permission)
  }

  /// Called when this gateway is no longer the holder. Readers continue with the pushes that this gateway has, and get
  /// later pushes when the store reports them.
  package func lose(_ name: String) {
    guard let slot = slot(name), !slot.session.isRetired else { return }
    leave(slot)
    let last = slot.session.inbox
    slot.replace(.followed(ConcurrentInbox(following: last.followed, budget: slot.plan.budget)))
  }

  /// The socket is closed first, since another gateway may be about to open its own connection.
  private func leave(_ slot: SharedSlot) {
    slot.session.retire()
    slot.placement.move(to: .nowhere)
  }

  /// Called when the store reports the holder of a session. `address` is nil if there is no holder. Ignored while this
  /// gateway is the holder.
  package func locate(_ name: String, at address: SocketAddress?, _ status: HolderStatus? = nil) {
    guard let slot = slot(name) else { return }
    let session = slot.session
    guard session.isRetired, slot.placement.move(to: address.map { .at($0) } ?? .nowhere, status) else { return }
    // Notifies streams of the state.
    session.upstream.noteStateChange()
  }

  /// Called when the store reports pushes of a session with another holder.
  package func follow(_ name: String, _ change: FollowedChange) {
    guard let slot = slot(name), slot.session.isRetired else { return }
    let inbox = slot.session.inbox
    switch (change, copies.withLock { $0[name]?.phase ?? .void }) {
    case (.restarted(let epoch, let terms), _):
      let log = FollowedLog(epoch: epoch, terms.ofLog, retention: slot.plan.retention)
      copies.withLock { $0[name] = .reading(log) }
    case (.continued(let number, let terms), .inUse): inbox.continue(after: number, terms.ofLog)
    case (.entries(let entries), .inUse):
      inbox.follow(entries)
      if slot.copy.isCurrent { slot.copy.arrived(entries) }
    case (.continued(let number, let terms), .reading): changeLog(of: name) { $0.continue(after: number, terms.ofLog) }
    case (.entries(let entries), .reading): changeLog(of: name) { $0.follow(entries) }
    case (.isCurrent, .reading):
      guard case .reading(let log)? = copies.withLock({ $0.updateValue(.inUse, forKey: name) }) else { return }
      if inbox.epoch == log.epoch, !inbox.isUnknown {
        slot.replaceLog(with: log)
      } else {
        slot.replace(.followed(ConcurrentInbox(following: log, budget: slot.plan.budget)))
      }
      setCurrent(slot)
    case (.isCurrent, .inUse): setCurrent(slot)
    case (.refreshed(let number), .inUse):
      slot.copy.setRefreshed(number)
      slot.session.inbox.notifier.notify()
    case (.isOutdated, _): _ = slot.copy.setCurrent(false)
    case (.ended, let phase):
      _ = slot.copy.setCurrent(false)
      // The next changes begin with `restarted`.
      if phase == .reading { copies.withLock { $0[name] = .void } }
    case (.refreshed, .reading), (_, .void): break
    }
  }

  /// Changes a log that is being read. While it is changed there is no other reference to it, so it is changed in place
  /// and not copied.
  private func changeLog(of name: String, _ change: (inout FollowedLog) -> Void) {
    guard case .reading(var log)? = copies.withLock({ $0.updateValue(.void, forKey: name) }) else { return }
    change(&log)
    copies.withLock { $0[name] = .reading(log) }
  }

  /// Marks the copy as current. Called after the change of the inbox, so that a reader that finds the copy current also
  /// finds all its pushes.
  private func setCurrent(_ slot: SharedSlot) {
    if slot.copy.setCurrent(true) { slot.session.inbox.notifier.notify() }
  }

  /// Called at the holder while clients of another gateway read the session.
  package func noteDistantReaders(_ name: String) {
    guard let session = slot(name)?.session, !session.isRetired else { return }
    session.noteDistantReaders(at: ProcessInformation.monotonicTime())
  }
}

extension SharedSessions: RedisStoreDelegate {
  package func store(_ store: RedisStore, acquired name: String, _ opened: OpenedJournal) {
    becomeHolder(of: name, opened, WritePermission { [weak store] in store?.mayWrite ?? false })
  }

  package func store(_ store: RedisStore, lost name: String, _ reason: SessionLoss) {
    lose(name)
    store.follow(name)
  }

  package func store(_ store: RedisStore, follows name: String, _ change: FollowedChange) { follow(name, change) }

  package func store(_ store: RedisStore, finds name: String, at holder: SessionHolder?) {
    let status = holder.map { holder in
      var id = ByteQueue()
      holder.gateway.write(into: &id)
      return HolderStatus(
        term: UInt64(holder.term.counter),
        peer: HolderStatus.Peer(gateway: id.bytes.text(), address: holder.address))
    }
    locate(name, at: holder.flatMap { ListenerAddress.parse($0.address) }, status)
  }

  package func store(_ store: RedisStore, shares secret: String) { usesSecret(secret) }

  package func store(_ store: RedisStore, servesReadersOf name: String) { noteDistantReaders(name) }

  package func store(_ store: RedisStore, defines name: String, _ definition: SessionDefinition) {
    guard let slot = directory?.add(name, definition) else { return }
    let name = definition.storedName(name)
    let hasBegun = state.withLock { state in
      state.slots[name] = slot
      return state.willBeLocal != nil
    }
    if hasBegun { take(slot, name, store) }
  }

  package func store(_ store: RedisStore, removes name: String, _ definition: SessionDefinition, code: UInt16) {
    let name = definition.storedName(name)
    guard let slot = state.withLock({ $0.slots.removeValue(forKey: name) }) else { return }
    _ = copies.withLock { $0.removeValue(forKey: name) }
    directory?.created.remove(slot, code: code)
  }
}

extension HolderTerms {
  fileprivate var ofLog: [Term] { begins.map { Term($0.term.value, firstMessage: $0.firstPush) } }
}
