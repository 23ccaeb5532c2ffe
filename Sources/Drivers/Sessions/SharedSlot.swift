import Configuration
import Inbox
import Logging
import Metrics
import Reactor
import Replication
import Synchronization
import Threading
import Upstream

/// A session that several gateways share. At each time it is one `Session`: one that this gateway holds, with its upstream, or one that
/// follows the pushes of another gateway's. Each takes the place of the one before.
///
/// Readable from any thread; one look-up takes a lock, for the time of one reference. `SharedSessions` changes it, on one thread.
package final class SharedSlot: Sendable {
  /// What all sessions of the slot have in common.
  package struct Plan: Sendable {
    package let name: String
    package let settings: SharedSettings
    package let retention: Retention
    package let logger: Logger
    package let attemptLimiter: SharedAttemptLimiter
    package let budget: RetentionBudget
    /// Whether the session is followed while nobody reads it here.
    package let isAlwaysFollowed: Bool
    /// nil if the session is configured.
    let created: Created?

    package init(
      _ name: String, _ settings: SharedSettings, retention: Retention, logger: Logger,
      attemptLimiter: SharedAttemptLimiter, budget: RetentionBudget = RetentionBudget(),
      isAlwaysFollowed: Bool = true
    ) {
      self.init(
        name, settings, retention: retention, logger: logger, attemptLimiter: attemptLimiter, budget: budget,
        isAlwaysFollowed: isAlwaysFollowed, created: nil)
    }

    init(
      _ name: String, _ settings: SharedSettings, retention: Retention, logger: Logger,
      attemptLimiter: SharedAttemptLimiter, budget: RetentionBudget, isAlwaysFollowed: Bool, created: Created?
    ) {
      self.name = name
      self.settings = settings
      self.retention = retention
      self.logger = logger
      self.attemptLimiter = attemptLimiter
      self.budget = budget
      self.isAlwaysFollowed = isAlwaysFollowed
      self.created = created
    }
  }

  /// How a client has created the session.
  struct Created: Sendable {
    let creation: SessionCreation
    /// As Redis has it.
    let definition: SessionDefinition
    let directory: CreatedSessions
    let lineLimiter: LogLineLimiter
    /// Whether this gateway may hold it: it has the profile, and descriptors.
    let mayBeHeld: Bool
  }

  private struct State {
    var session: Session
    /// Where sessions run; nil before the start.
    var place: (loop: EventLoop, resolver: Resolver)?
  }

  /// The figures of all sessions of the slot: those that were replaced add to the sums that only increase.
  private final class Figures: Sendable {
    private let state = Locked<(past: SessionFigures, present: Session?)>((SessionFigures(), nil))

    /// In one step with the change of the session, so that no sum decreases.
    var sum: SessionFigures { state.withLock { Self.sum($0) } }

    func begin(_ session: Session) {
      state.withLock { $0 = (Self.sum($0).totals, session) }
    }

    private static func sum(_ state: (past: SessionFigures, present: Session?)) -> SessionFigures {
      state.present.map { state.past.followed(by: SessionFigures($0)) } ?? state.past
    }
  }

  package let plan: Plan
  /// Where the session is. Requests that are forwarded follow it.
  package let placement = SessionPlacement(.nowhere)
  /// What this gateway knows of the pushes of other holders.
  package let copy: FollowedCopy
  /// Whether this gateway wants to close it, since nobody uses it.
  let isIdle = Atomic(false)
  private let state: Locked<State>
  private let figures: Figures
  private let metrics: UpstreamMetrics

  package convenience init(_ plan: Plan, metrics registry: MetricsRegistry) {
    let figures = Figures()
    let metrics = SessionMetrics.register(
      registry.figures { figures.sum }, session: plan.name, in: registry)
    self.init(plan, figures, metrics, registry)
  }

  /// The slot of a session that a client has created. Its directory registers the metrics, which all of them share.
  convenience init(_ plan: Plan, sharing metrics: UpstreamMetrics, _ registry: MetricsRegistry) {
    self.init(plan, Figures(), metrics, registry)
  }

  private init(_ plan: Plan, _ figures: Figures, _ metrics: UpstreamMetrics, _ registry: MetricsRegistry) {
    self.plan = plan
    self.metrics = metrics
    copy = FollowedCopy(isAlwaysFollowed: plan.isAlwaysFollowed, metrics: registry)
    let inbox = SharedInbox.unknown(retention: plan.retention, budget: plan.budget)
    let session = Session(plan, .followed(inbox), placement, copy, metrics: metrics)
    figures.begin(session)
    self.figures = figures
    state = Locked(State(session: session))
  }

  package var session: Session { state.withLock { $0.session } }

  /// Of all sessions of the slot together.
  var figuresSum: SessionFigures { figures.sum }

  /// The sessions run on this loop from now on.
  func start(on loop: EventLoop, resolver: Resolver) {
    let session = state.withLock { state in
      state.place = (loop, resolver)
      return state.session
    }
    Self.start(session, on: loop, resolver)
  }

  private static func start(_ session: Session, on loop: EventLoop, _ resolver: Resolver) {
    if session.isRetired { session.startFollowing(on: loop) } else { session.start(on: loop, resolver: resolver) }
  }

  /// Makes a session the present one. What waits for pushes of the last one ends, with what it has, and its clients continue with this one.
  func replace(_ role: Session.Role, prepare: (Session) -> Void = { _ in }) {
    let session = Session(plan, role, placement, copy, metrics: metrics)
    prepare(session)
    let (last, place) = state.withLock { state in
      let last = state.session
      state.session = session
      return (last, state.place)
    }
    figures.begin(session)
    last.inbox.replaced()
    if let place { Self.start(session, on: place.loop, place.resolver) }
  }
}

extension SessionFigures {
  /// The figures of a session that has taken the place of one with these.
  fileprivate func followed(by next: SessionFigures) -> SessionFigures {
    var sum = totals
    sum += next
    // The numbers of pushes continue.
    sum.pushes = max(pushes, next.pushes)
    return sum
  }
}
