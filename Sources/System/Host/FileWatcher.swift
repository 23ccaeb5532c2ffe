import ByteStreams
import CLinux
import Glibc

/// Reports files that have changed (inotify(7)). A file has changed if it was written in place, replaced by a renaming,
/// or removed and created again. A file has also changed if a symbolic link or directory on the way to it was replaced,
/// as Kubernetes replaces `..data`.
///
/// A change is reported when it has settled. The owner calls `readEvents` when `descriptor` is readable, and
/// `takeChanges` at `deadline`. Must be used by one thread only.
package final class FileWatcher {
  /// A change has settled when no event has arrived for this time, since an editor may write a file, rename it and
  /// change its permissions.
  private static var quietTime: TimeSpan { .milliseconds(200) }
  /// A file that changes all the time is reported this long after its first change.
  private static var longestDelay: TimeSpan { .seconds(2) }
  /// The minimum time between two reports, since each report may cause many files to be read and connections to be
  /// replaced.
  private static var reportInterval: TimeSpan { .seconds(2) }
  /// Maximum number of buffers of events that are read per call, so that a busy directory does not keep the thread from
  /// its other tasks.
  private static var readsPerCall: Int { 16 }
  private static var bufferBytes: Int { 16 * 1024 }
  /// The watched events of the names in a directory, and of the directory itself. `IN_ATTRIB` is among them, because a
  /// file may have become readable.
  private static var mask: UInt32 {
    UInt32(
      IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
  }

  /// The inotify descriptor, which is readable when there are events.
  package let descriptor: Int32
  /// The last known fingerprint of each watched file; nil if it did not exist.
  private var files: [String: FileFingerprint?] = [:]
  /// The watched names of each directory, by the directory's watch. A watch on a file itself has no names, since its
  /// events have none.
  private var names: [Int32: Set<String>] = [:]
  private var firstEvent: MonotonicTime?
  private var settledAt = MonotonicTime.distantFuture
  private var nextReport = MonotonicTime.zero

  package init() throws(SystemError) {
    descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
    guard descriptor >= 0 else { throw SystemError("inotify_init1", code: errno) }
  }

  deinit { if descriptor >= 0 { SystemCall.close(descriptor) } }

  /// Number of watches, one per directory on the way to a watched file, and one per file.
  package var watchCount: Int { names.count }

  /// Watches these files and no others. A file that no longer has the given fingerprint is reported as changed, so a
  /// change between the read of the file and this call is not missed. If a watch cannot be added, adds the other
  /// watches and throws.
  package func watch(_ files: [String: FileFingerprint?], now: MonotonicTime) throws(SystemError) {
    self.files = files
    let failure = addWatches()
    if !files.allSatisfy({ FileFingerprint(of: $0.key) == $0.value }) { noteEvent(at: now) }
    if let failure { throw failure }
  }

  /// The time at which `takeChanges` must be called because there are events.
  package var deadline: MonotonicTime { settledAt }

  /// Reads the events that have arrived.
  package func readEvents(now: MonotonicTime) {
    var buffer = [UInt8](repeating: 0, count: Self.bufferBytes)
    for _ in 0..<Self.readsPerCall {
      let count = SystemCall.retrying { unsafe read(descriptor, &buffer, buffer.count) }
      guard count > 0 else { return }
      if concernsFiles(buffer[..<count]) { noteEvent(at: now) }
    }
  }

  /// Whether one of the events concerns a watched file.
  private func concernsFiles(_ events: ArraySlice<UInt8>) -> Bool {
    unsafe events.withUnsafeBytes { bytes in
      var offset = 0
      while offset + MemoryLayout<inotify_event>.size <= bytes.count {
        let watch = unsafe bytes.loadUnaligned(fromByteOffset: offset, as: Int32.self)
        let length = unsafe Int(bytes.loadUnaligned(fromByteOffset: offset + 12, as: UInt32.self))
        offset += MemoryLayout<inotify_event>.size
        let name = unsafe bytes[offset..<min(offset + length, bytes.count)].prefix { $0 != 0 }
        offset += length
        guard let names = names[watch] else {
          // -1 means that events were lost. Any other unknown number belongs to a watch that was removed.
          if watch == -1 { return true }
          continue
        }
        // An event without a name means that the file or the directory itself has changed, or that its watch has ended.
        if unsafe name.isEmpty || names.contains(String(decoding: name, as: UTF8.self)) { return true }
      }
      return false
    }
  }

  private func noteEvent(at now: MonotonicTime) {
    let first = firstEvent ?? now
    firstEvent = first
    settledAt = max(min(now + Self.quietTime, first + Self.longestDelay), nextReport)
  }

  /// Returns the paths of the files that have changed since the last report. Updates the watches, since other
  /// directories may now lead to the files.
  package func takeChanges(now: MonotonicTime) -> Set<String> {
    firstEvent = nil
    settledAt = .distantFuture
    // Watches are added before the files are examined, so that a later change raises an event. If a watch cannot be
    // added, `watch` has already reported it.
    _ = addWatches()
    var changed: Set<String> = []
    for (path, known) in files {
      let current = FileFingerprint(of: path)
      guard current != known else { continue }
      files[path] = .some(current)
      changed.insert(path)
    }
    if !changed.isEmpty { nextReport = now + Self.reportInterval }
    return changed
  }

  /// Adds a watch for each directory on the way to a file and for the file itself, and removes watches that are no
  /// longer needed. Returns the first error.
  private func addWatches() -> SystemError? {
    var names: [Int32: Set<String>] = [:]
    var failure: SystemError?
    func add(_ path: String, name: String?) {
      // If the watch already exists, inotify returns its number.
      let watch = unsafe inotify_add_watch(descriptor, path, Self.mask)
      if watch >= 0 {
        names[watch, default: []].formUnion(name.map { [$0] } ?? [])
      } else if name != nil || errno != ENOENT {
        // It is no error if the file does not exist, since its directory is watched.
        failure = failure ?? SystemError("inotify_add_watch", code: errno, subject: path)
      }
    }
    for path in files.keys {
      for entry in DirectoryEntry.all(leadingTo: path) { add(entry.directory, name: entry.name) }
      // The file itself is watched, too. A container runtime may mount the file alone, so that its directory has no
      // events.
      add(path, name: nil)
    }
    for watch in self.names.keys where names[watch] == nil { inotify_rm_watch(descriptor, watch) }
    self.names = names
    return failure
  }
}
