import Consumers
import Journal
import Outbox

/// A bug in the store or its neighbours, which the simulation must find.
enum PlantedBug: String, CaseIterable {
  /// The store confirms entries before it has stored them.
  case confirmedBeforeKept
  /// The store stores a call before an earlier call.
  case reordered
  /// The store restores all rows of changes except the last row.
  case lastRowSkipped
  /// The store does not fence terms: it stores entries of a former holder.
  case staleTermStores
  /// A message is acknowledged when it is submitted.
  case acceptedBeforeStored
  /// A gateway uses its session after its deadline.
  case leaseNotChecked
  case gapNotRecorded
  /// The store drops entries of one kind, and reports them as stored.
  case keyNotStored
  case withdrawalNotStored
  case acknowledgementNotStored
  case confirmationNotStored
  case intentNotStored
  case desiredNotStored

  /// A seed that finds the bug, or a seed shortly before it. A change of the simulation changes the seeds; `make
  /// simulation` prints the new seeds.
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

  /// Whether the store drops the entry.
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
