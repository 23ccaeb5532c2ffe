import ByteStreams
import Journal
import Replication

/// The loading of a session that this gateway has acquired. Its streams are read in parts.
final class SessionLoading {
  let acquisition: Acquisition
  /// Whether the stream of pushes is being read. Before that, the stream of changes is read.
  private(set) var readsPushes = false
  private(set) var last = PushEntryID.none
  private var changes: [[UInt8]] = []
  private var restoration: SessionRestoration
  /// About how many bytes the next read returns.
  var partBytes: Int { StreamPart.bytes(isFirst: last == .none) }
  /// The bytes of the stored state, which begins the stream of changes, and of the later changes.
  private(set) var stateBytes = 0
  private(set) var changeBytes = 0

  init(_ acquisition: Acquisition) {
    self.acquisition = acquisition
    restoration = SessionRestoration(epoch: acquisition.epoch)
  }

  enum Progress {
    case reads
    case loaded(RestoredSession)
    /// The stored data is damaged. The text says which entry.
    case damaged(String)
  }

  /// Adds a part that was read after `last`.
  func add(_ part: StreamPart) -> Progress {
    for (id, bytes) in part.entries {
      last = id
      if readsPushes {
        guard restoration.add(pushes: bytes.span, through: id.push) else {
          return .damaged("entry \(id.push)-\(id.count) of its pushes")
        }
      } else {
        guard restoration.examine(changes: bytes.span) else {
          return .damaged("entry \(id.push)-\(id.count) of its changes")
        }
        // The parts of a state have counts from 1. Other changes have the count 0.
        let cost = bytes.count + JournaledSession.rowOverhead
        if id.count > 0 { stateBytes += cost } else { changeBytes += cost }
        changes.append(bytes)
      }
    }
    if part.hasMore { return .reads }
    guard readsPushes else {
      (readsPushes, last) = (true, .none)
      return .reads
    }
    for (index, bytes) in changes.enumerated() where !restoration.apply(changes: bytes.span) {
      return .damaged("entry \(index + 1) of its changes, which does not follow the previous entry")
    }
    changes = []
    return .loaded(restoration.state)
  }
}
