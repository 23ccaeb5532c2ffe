import Configuration
import Inbox
import Profiles
import Replication
import Threading
import Upstream

/// A profile with the files that its settings name read.
package struct ProfilePlan: Sendable {
  package let profile: SessionProfile
  /// With the TLS context that all of its sessions share.
  private let settings: SharedSettings

  /// - Parameter settings: made of `profile.sample`.
  package init(_ profile: SessionProfile, _ settings: SharedSettings) {
    self.profile = profile
    self.settings = settings
  }

  package var retention: Retention { profile.configuration.retention }

  /// The settings of a session, and the values of all its variables.
  ///
  /// - Parameter given: the values that a client gives.
  package func session(
    _ given: [String: String]
  ) throws(VariableError) -> (settings: SharedSettings, values: [String: String]) {
    let values = try profile.variables.values(given)
    return (settings.session(try profile.upstream(values)), values)
  }
}

/// The profiles that are in effect. A reload replaces them, for new sessions only. Thread-safe.
package final class ProfileBook: Sendable {
  private let plans = Locked<[ProfilePlan]>([])

  /// In the order of the file.
  package var all: [ProfilePlan] { plans.withLock { $0 } }

  package func find(_ name: String) -> ProfilePlan? { all.first { $0.profile.name == name } }

  /// Of a session that a client has created at any gateway; nil if its profile is missing here or does not allow its variables.
  func plan(of definition: SessionDefinition) -> (settings: SharedSettings, retention: Retention)? {
    guard let plan = find(definition.profile) else { return nil }
    do throws(VariableError) {
      return (try plan.session(definition.variables).settings, plan.retention)
    } catch {
      return nil
    }
  }

  package func replace(with plans: [ProfilePlan]) { self.plans.withLock { $0 = plans } }
}
