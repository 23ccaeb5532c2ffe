import ByteStreams
import Journal
import Replication

/// A session that this gateway has acquired and is reading, in parts.
final class SessionLoading {
  let acquisition: Acquisition
  /// Which stream is read, and from where.
  private(set) var readsPushes = false
  private(set) var last = PushEntryID.none
  private var changes: [[UInt8]] = []
  private var restoration: SessionRestoration
  /// About how many bytes are read next.
  var partBytes: Int { StreamPart.bytes(isFirst: last == .none) }
  /// Bytes of the state at the beginning of the changes, and of the others.
  private(set) var stateBytes = 0
  private(set) var changeBytes = 0

  init(_ acquisition: Acquisition) {
    self.acquisition = acquisition
    restoration = SessionRestoration(epoch: acquisition.epoch)
  }

  enum Progress {
    case reads
    case loaded(RestoredSession)
    /// What is damaged.
    case damaged(String)
  }

  /// Adds what was read after `last`.
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
        // The parts of a state are counted from 1.
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
      return .damaged("entry \(index + 1) of its changes, which does not follow those before")
    }
    changes = []
    return .loaded(restoration.state)
  }
}
