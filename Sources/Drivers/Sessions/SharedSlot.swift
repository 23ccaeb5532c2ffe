import Inbox
import Logging
import Metrics
import Reactor
import Replication
import Synchronization
import Threading
import Upstream

/// Refers to the `Session` object that represents a shared session at this gateway at present. The object is a local
/// session with its upstream, or a session that follows the pushes of another gateway. Each new object replaces the
/// previous object.
///
/// Readable from any thread. A read takes a lock while it copies a reference. `SharedSessions` changes the slot, on one
/// thread.
package final class SharedSlot: Sendable {
  /// The settings and dependencies from which the slot makes its next session object.
  package struct Plan: Sendable {
    package let name: String
    package fileprivate(set) var settings: PreparedSettings
    package fileprivate(set) var retention: Retention
    fileprivate(set) var webhooks: [WebhookPlan]
    package let logger: Logger
    package let attemptLimiter: ConcurrentAttemptLimiter
    package let budget: RetentionBudget
    /// Whether the session is followed even while it has no readers here.
    package let isAlwaysFollowed: Bool
    /// How a client has created the session; nil if the session is configured.
    fileprivate(set) var created: Created?

    package init(
      _ name: String, _ settings: PreparedSettings, retention: Retention, logger: Logger,
      attemptLimiter: ConcurrentAttemptLimiter, budget: RetentionBudget = RetentionBudget(),
      isAlwaysFollowed: Bool = true, webhooks: [WebhookPlan] = []
    ) {
      self.init(
        name, settings, retention: retention, logger: logger, attemptLimiter: attemptLimiter, budget: budget,
        isAlwaysFollowed: isAlwaysFollowed, webhooks: webhooks, created: nil)
    }

    init(
      _ name: String, _ settings: PreparedSettings, retention: Retention, logger: Logger,
      attemptLimiter: ConcurrentAttemptLimiter, budget: RetentionBudget, isAlwaysFollowed: Bool,
      webhooks: [WebhookPlan] = [], created: Created?
    ) {
      self.name = name
      self.settings = settings
      self.retention = retention
      self.webhooks = webhooks
      self.logger = logger
      self.attemptLimiter = attemptLimiter
      self.budget = budget
      self.isAlwaysFollowed = isAlwaysFollowed
      self.created = created
    }
  }

  /// How a client has created a session.
  struct Created: Sendable {
    let creation: SessionCreation
    /// The definition of the session in Redis.
    let definition: SessionDefinition
    let directory: CreatedSessions
    let lineLimiter: LogLineLimiter
    /// Whether this gateway may be the holder, because it has the profile.
    fileprivate(set) var mayBeLocal: Bool

    init(
      creation: SessionCreation, definition: SessionDefinition, directory: CreatedSessions, lineLimiter: LogLineLimiter,
      mayBeLocal: Bool
    ) {
      self.creation = creation
      self.definition = definition
      self.directory = directory
      self.lineLimiter = lineLimiter
      self.mayBeLocal = mayBeLocal
    }
  }

  private struct State {
    var plan: Plan
    var session: Session
    /// The loop and resolvers of the session objects; nil before the start.
    var place: Place?
    /// Called when the webhooks have become idle. nil until `stopWebhooks` has been called.
    var onIdleWebhooks: (@Sendable () -> Void)?
  }

  private struct Place {
    let loop: EventLoop
    let resolver: Resolver
    /// The resolver of the webhooks; nil if the session has no webhooks.
    let webhookResolver: Resolver?
  }

  /// The figures of all session objects of the slot. Counters include the objects that were replaced, since a counter
  /// must never decrease.
  private final class Figures: Sendable {
    private let state = Locked<(past: SessionFigures, present: Session?)>((SessionFigures(), nil))

    /// Read under the lock under which the session object is replaced, so that no sum decreases.
    var sum: SessionFigures { state.withLock { Self.sum($0) } }

    func begin(_ session: Session) {
      state.withLock { $0 = (Self.sum($0).totals, session) }
    }

    private static func sum(_ state: (past: SessionFigures, present: Session?)) -> SessionFigures {
      state.present.map { state.past.followed(by: SessionFigures($0)) } ?? state.past
    }
  }

  /// The parts that all session objects of a slot use.
  struct Parts: Sendable {
    /// The place of the session. Forwarded requests wait for its changes.
    let placement = SessionPlacement(.nowhere, isShared: true)
    /// This gateway's copy of the pushes of other holders.
    let copy: FollowedCopy
    let metrics: UpstreamMetrics
    let webhookMetrics: WebhookMetricsTable
  }

  package let name: String
  private let parts: Parts
  /// Whether this gateway has sent Redis a request to remove the session because it is idle.
  let isIdle = Atomic(false)
  private let state: Locked<State>
  /// Locked while the session object or its settings change, so that no object misses a change of the settings. Lock
  /// order: this lock is taken before `state`.
  private let changes = Locked(())
  private let figures: Figures

  package convenience init(_ plan: Plan, metrics registry: MetricsRegistry) {
    let figures = Figures()
    let metrics = SessionMetrics.register(
      registry.figures { figures.sum }, session: plan.name, in: registry)
    self.init(plan, figures, metrics, registry)
    let placement = placement
    let labels: MetricsRegistry.Labels = [("session", plan.name)]
    registry.gauge("drawbridge_session_held", "1 while this gateway is the holder of the session, otherwise 0.", labels)
    {
      placement.place == .here ? 1 : 0
    }
    registry.gauge(
      "drawbridge_session_term",
      "Term of the session's holder, as far as this gateway knows; 0 while the session has no holder.", labels
    ) { Double(placement.holder?.term ?? 0) }
  }

  /// Creates the slot of a created session. All created sessions use the same metrics, which the directory registers.
  convenience init(_ plan: Plan, sharing metrics: UpstreamMetrics, _ registry: MetricsRegistry) {
    self.init(plan, Figures(), metrics, registry)
  }

  private init(_ plan: Plan, _ figures: Figures, _ metrics: UpstreamMetrics, _ registry: MetricsRegistry) {
    name = plan.name
    parts = Parts(
      copy: FollowedCopy(isAlwaysFollowed: plan.isAlwaysFollowed, metrics: registry), metrics: metrics,
      webhookMetrics: WebhookMetricsTable(registry, session: plan.name))
    let inbox = ConcurrentInbox.unknown(retention: plan.retention, budget: plan.budget)
    let session = Session(plan, .followed(inbox), parts)
    figures.begin(session)
    self.figures = figures
    state = Locked(State(plan: plan, session: session))
  }

  package var placement: SessionPlacement { parts.placement }
  package var copy: FollowedCopy { parts.copy }
  package var plan: Plan { state.withLock { $0.plan } }

  package var session: Session { state.withLock { $0.session } }

  /// The figures of all session objects of the slot together.
  var figuresSum: SessionFigures { figures.sum }

  /// Runs the session objects on this loop from now on.
  func start(on loop: EventLoop, resolver: Resolver, webhookResolver: Resolver? = nil) {
    let place = Place(loop: loop, resolver: resolver, webhookResolver: webhookResolver)
    changes.withLock { _ in
      let (session, onIdle) = state.withLock { state in
        state.place = place
        return (state.session, state.onIdleWebhooks)
      }
      Self.start(session, at: place, endingWebhooks: onIdle)
    }
  }

  private static func start(_ session: Session, at place: Place, endingWebhooks onIdle: (@Sendable () -> Void)?) {
    guard !session.isRetired else { return session.startFollowing(on: place.loop) }
    session.start(on: place.loop, resolver: place.resolver)
    if let onIdle {
      session.webhooks?.stop(whenIdle: onIdle)
    } else if let resolver = place.webhookResolver {
      session.webhooks?.start(on: place.loop, resolver: resolver)
    }
  }

  /// Replaces the present session object. Requests that wait for pushes of the old object end with the pushes that they
  /// have. Their clients continue with the new object.
  func replace(_ role: Session.Role, prepare: (Session) -> Void = { _ in }) {
    changes.withLock { _ in
      let plan = plan
      let session = Session(plan, role, parts)
      // The settings may have changed since the copy was begun.
      if session.isRetired { session.change(plan.retention) }
      prepare(session)
      let (last, place, onIdle) = state.withLock { state in
        let last = state.session
        state.session = session
        return (last, state.place, state.onIdleWebhooks)
      }
      figures.begin(session)
      last.inbox.replaced()
      if let place { Self.start(session, at: place, endingWebhooks: onIdle) }
    }
  }

  /// Continues the inbox with a log that was read again.
  func replaceLog(with log: FollowedLog) {
    changes.withLock { _ in
      let session = session
      session.inbox.replaceLog(with: log)
      session.change(plan.retention)
    }
  }

  /// Applies reloaded settings to the present session object, and to the objects that will replace it.
  func reload(_ change: SessionReload) {
    changes.withLock { _ in
      let session = state.withLock { state in
        if let retention = change.retention { state.plan.retention = retention }
        if let settings = change.upstream.settings { state.plan.settings = settings }
        state.plan.webhooks = change.webhooks
        return state.session
      }
      session.reload(change)
    }
  }

  /// Called when a client has closed the session at any gateway, or it was idle. Ends the requests that wait for the
  /// session or for a holder.
  func close(code: UInt16) {
    session.close(code: code)
    placement.close()
    session.upstream.deliveryNotifier.notify()
  }

  /// Allows this gateway to be the holder from now on.
  func letBeLocal(with settings: PreparedSettings, retention: Retention) {
    changes.withLock { _ in
      let session = state.withLock { state in
        state.plan.settings = settings
        state.plan.retention = retention
        state.plan.created?.mayBeLocal = true
        return state.session
      }
      session.change(retention)
    }
  }

  /// Ends the webhooks of the present session object, and of the objects that will replace it.
  func stopWebhooks(whenIdle onIdle: @escaping @Sendable () -> Void) {
    changes.withLock { _ in
      let session = state.withLock { state in
        state.onIdleWebhooks = onIdle
        return state.session
      }
      session.webhooks?.stop(whenIdle: onIdle)
    }
  }
}

extension SessionFigures {
  /// The figures of a slot in which a session object with these figures was replaced by a session object with the
  /// figures `next`.
  fileprivate func followed(by next: SessionFigures) -> SessionFigures {
    var sum = totals
    sum += next
    // The new session object continues the numbers of the old object's pushes.
    sum.pushes = max(pushes, next.pushes)
    return sum
  }
}
