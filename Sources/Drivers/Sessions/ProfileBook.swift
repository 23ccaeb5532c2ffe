import Inbox
import Profiles
import Replication
import Threading
import Upstream

/// A profile, with the contents of the files that its settings name.
package struct ProfilePlan: Sendable {
  package let profile: SessionProfile
  /// The settings of `profile.sample`, with the TLS context that all sessions of the profile use.
  private let settings: PreparedSettings

  /// - Parameter settings: the settings that were made from `profile.sample`.
  package init(_ profile: SessionProfile, _ settings: PreparedSettings) {
    self.profile = profile
    self.settings = settings
  }

  package var retention: Retention { profile.configuration.retention }

  /// The settings of a session, and the values of all variables.
  ///
  /// - Parameter given: the values from the client.
  package func session(
    _ given: [String: String]
  ) throws(VariableError) -> (settings: PreparedSettings, values: [String: String]) {
    let values = try profile.variables.values(given)
    return (settings.session(try profile.upstream(values)), values)
  }
}

/// The profiles in effect. A reload replaces them, and affects new sessions only. Thread-safe.
package final class ProfileBook: Sendable {
  private let plans = Locked<[ProfilePlan]>([])

  /// The profiles, in the order of the configuration file.
  package var all: [ProfilePlan] { plans.withLock { $0 } }

  package func find(_ name: String) -> ProfilePlan? { all.first { $0.profile.name == name } }

  /// The settings of a session that a client has created at this or another gateway. Returns nil if this gateway does
  /// not have the profile of the session, or if the profile does not allow the values of the session's variables.
  func plan(of definition: SessionDefinition) -> (settings: PreparedSettings, retention: Retention)? {
    guard let plan = find(definition.profile) else { return nil }
    do throws(VariableError) {
      return (try plan.session(definition.variables).settings, plan.retention)
    } catch {
      return nil
    }
  }

  package func replace(with plans: [ProfilePlan]) { self.plans.withLock { $0 = plans } }
}
