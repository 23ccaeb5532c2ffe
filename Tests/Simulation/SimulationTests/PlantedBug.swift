import Consumers
import Journal
import Outbox

/// A mistake in the store, or in what is around it, which the simulation must find.
enum PlantedBug: String, CaseIterable {
  /// The store confirms what it has not kept.
  case confirmedBeforeKept
  /// It keeps a call before an earlier one.
  case reordered
  /// It restores all but the last row of changes.
  case lastRowSkipped
  /// Its terms are not fenced: a former holder's entries are kept.
  case staleTermStores
  /// A message is acknowledged when it is submitted.
  case acceptedBeforeStored
  /// A gateway uses its session after its lease has ended.
  case leaseNotChecked
  case gapNotRecorded
  /// The store does not keep entries of one kind, and reports them as stored.
  case keyNotStored
  case withdrawalNotStored
  case acknowledgementNotStored
  case confirmationNotStored
  case intentNotStored
  case desiredNotStored

  /// A seed with which it is found, or shortly before it. A change of the simulation changes these: `make simulation` prints others.
  var seed: UInt64 {
    switch self {
    case .withdrawalNotStored, .intentNotStored: 1
    case .staleTermStores: 2
    case .desiredNotStored, .leaseNotChecked, .confirmedBeforeKept: 4
    case .keyNotStored: 13
    case .reordered, .lastRowSkipped, .acceptedBeforeStored, .gapNotRecorded, .acknowledgementNotStored,
      .confirmationNotStored:
      0
    }
  }

  /// Whether the store forgets an entry.
  func drops(_ entry: JournalEntry) -> Bool {
    switch (self, entry) {
    case (.withdrawalNotStored, .outbox(.settled(let change))): change.state == DeliveryState.rejected.rawValue
    case (.confirmationNotStored, .outbox(.settled(let change))): change.state == DeliveryState.confirmed.rawValue
    case (.acknowledgementNotStored, .consumer(_, .settled(_, _))): true
    case (.keyNotStored, .keyed): true
    case (.intentNotStored, .outbox(.intended)): true
    case (.desiredNotStored, .desired): true
    default: false
    }
  }
}

/// A promise was broken.
struct Violation: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}
