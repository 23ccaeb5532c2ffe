import Reactor
import Replication
import Threading

/// A client's request to change the list of created sessions, or to look a session up. Thread-safe.
package final class DefinitionRequest: Sendable {
  package enum Outcome: Hashable, Sendable {
    /// Redis and its replicas have executed the request.
    case done
    /// A session of this name exists. The value is its definition; nil if the definition cannot be read.
    case exists(SessionDefinition?)
    case tooMany
    case tooManyOfOwner
    /// Redis could not be reached, refused the command, or did not confirm it. An unconfirmed command may have been
    /// executed. A repetition is harmless.
    case failed
  }

  /// Notified when there is an outcome.
  package let notifier = Notifier()
  private let state = Locked<(outcome: Outcome?, isAbandoned: Bool)>((nil, false))

  /// The client whose limit this request counts towards while it waits for Redis. 0 if the client is not known.
  let client: UInt64

  init(by client: UInt64 = 0) { self.client = client }

  package var outcome: Outcome? { state.withLock { $0.outcome } }

  /// Called when the client no longer waits. A command that was sent is still executed.
  package func abandon() { state.withLock { $0.isAbandoned = true } }

  var isAbandoned: Bool { state.withLock { $0.isAbandoned } }

  func finish(_ outcome: Outcome) {
    state.withLock { $0.outcome = $0.outcome ?? outcome }
    notifier.notify()
  }
}

/// A request to look a session up in Redis.
struct Lookup {
  /// The name that clients use for the session.
  let name: String
  let request: DefinitionRequest
}

/// A change of the list of created sessions.
final class DefinitionChange: Sendable {
  enum Kind: Sendable {
    /// - Parameter limits: the limits on created sessions; nil if the change restores a session that Redis has lost.
    case define(limits: DefinitionLimits?)
    case remove(code: UInt16)
    /// The removal of an idle session. It is executed only while this gateway is the holder.
    case removeIdle
  }

  let kind: Kind
  let name: String
  let definition: SessionDefinition
  /// nil if no client waits for the outcome.
  let request: DefinitionRequest?

  init(_ kind: Kind, _ name: String, _ definition: SessionDefinition, _ request: DefinitionRequest? = nil) {
    self.kind = kind
    self.name = name
    self.definition = definition
    self.request = request
  }
}

/// Maximum numbers of created sessions, counted over all gateways.
package struct DefinitionLimits: Hashable, Sendable {
  package let total: Int
  package let perOwner: Int

  package init(total: Int, perOwner: Int) {
    self.total = total
    self.perOwner = perOwner
  }
}
