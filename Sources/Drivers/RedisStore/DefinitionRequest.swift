import Reactor
import Replication
import Threading

/// A change of the list of sessions that clients create, or a look-up, for which a client waits. Safe for use from any thread.
package final class DefinitionRequest: Sendable {
  package enum Outcome: Hashable, Sendable {
    /// Redis and its replicas have it.
    case done
    /// There is a session of this name; nil: its definition cannot be read.
    case exists(SessionDefinition?)
    case tooMany
    case tooManyOfOwner
    /// Redis does not work, or has refused the command. It may have been executed: repeating it is harmless.
    case failed
  }

  /// Notified when there is an outcome.
  package let notifier = Notifier()
  private let state = Locked<(outcome: Outcome?, isAbandoned: Bool)>((nil, false))

  /// By whom it is counted among those that wait for Redis; 0 if that is not known.
  let client: UInt64

  init(by client: UInt64 = 0) { self.client = client }

  package var outcome: Outcome? { state.withLock { $0.outcome } }

  /// Nobody waits any more. What was sent to Redis is executed.
  package func abandon() { state.withLock { $0.isAbandoned = true } }

  var isAbandoned: Bool { state.withLock { $0.isAbandoned } }

  func finish(_ outcome: Outcome) {
    state.withLock { $0.outcome = $0.outcome ?? outcome }
    notifier.notify()
  }
}

/// A change of the list.
final class DefinitionChange: Sendable {
  enum Kind: Sendable {
    /// - Parameter limits: nil: the session exists, and Redis has lost it.
    case define(limits: DefinitionLimits?)
    case remove(code: UInt16)
    /// Only if this gateway holds it.
    case removeIdle
  }

  let kind: Kind
  let name: String
  let definition: SessionDefinition
  /// nil: nobody waits.
  let request: DefinitionRequest?

  init(_ kind: Kind, _ name: String, _ definition: SessionDefinition, _ request: DefinitionRequest? = nil) {
    self.kind = kind
    self.name = name
    self.definition = definition
    self.request = request
  }
}

/// How many sessions clients may create, at all gateways together.
package struct DefinitionLimits: Hashable, Sendable {
  package let total: Int
  package let perOwner: Int

  package init(total: Int, perOwner: Int) {
    self.total = total
    self.perOwner = perOwner
  }
}
