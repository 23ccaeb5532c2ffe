import ByteStreams
import Glibc
import Testing
import Threading

@testable import Host

/// Changes of files, as reported by inotify. Each test waits for a report, not for a time.
@Suite struct FileWatcherTests {
  /// A folder with a watched file.
  private final class Folder {
    let path: String
    let watcher: FileWatcher
    let events: ProcessEvents

    init() throws {
      let parent = SystemFile.environment()["TMPDIR"] ?? "/tmp"
      path = parent + "/watched-\(UInt64.random(in: 0 ... .max))"
      watcher = try FileWatcher()
      events = try ProcessEvents(signals: [])
      #expect(mkdir(path, 0o700) == 0)
    }

    deinit { _ = system("rm -rf '\(path)'") }

    func file(_ name: String) -> String { path + "/" + name }

    func makeFolder(_ name: String) { #expect(mkdir(file(name), 0o700) == 0) }

    func write(_ text: String, to name: String) {
      let descriptor = open(file(name), O_WRONLY | O_CREAT | O_TRUNC, 0o600)
      #expect(descriptor >= 0 && Glibc.write(descriptor, text, text.utf8.count) == text.utf8.count)
      close(descriptor)
    }

    func remove(_ name: String) { _ = system("rm -r '\(file(name))'") }

    func rename(_ name: String, to other: String) { #expect(Glibc.rename(file(name), file(other)) == 0) }

    /// Links `name` to `target` in one step, as Kubernetes does.
    func link(_ name: String, to target: String) {
      #expect(symlink(target, file("new")) == 0)
      rename("new", to: name)
    }

    func watch(_ names: String...) throws {
      var files: [String: FileFingerprint?] = [:]
      for name in names { files[file(name)] = .some(FileFingerprint(of: file(name))) }
      try watcher.watch(files, now: ProcessInformation.monotonicTime())
    }

    /// Waits for the next report with a changed file.
    func changes() -> Set<String> {
      let end = ProcessInformation.monotonicTime() + .seconds(30)
      while ProcessInformation.monotonicTime() < end {
        switch events.wait(until: min(watcher.deadline, end), orReadable: watcher.descriptor) {
        case .readable: watcher.readEvents(now: ProcessInformation.monotonicTime())
        case .deadline:
          // Reads the changes as if the previous report were long ago.
          let changed = watcher.takeChanges(now: .zero)
          if !changed.isEmpty { return Set(changed.map { String($0.dropFirst(path.count + 1)) }) }
        case .signal, .woken: break
        }
      }
      return []
    }
  }

  @Test func aFileThatIsWrittenInPlaceOrReplacedByRenamingHasChanged() throws {
    let folder = try Folder()
    folder.write("a", to: "one")
    folder.write("a", to: "two")
    try folder.watch("one", "two")
    folder.write("bc", to: "one")
    #expect(folder.changes() == ["one"])
    folder.write("def", to: "new")
    folder.rename("new", to: "two")
    #expect(folder.changes() == ["two"])
    // The watcher watches the new file like the previous file.
    folder.write("ghij", to: "two")
    #expect(folder.changes() == ["two"])
  }

  @Test func aFileThatIsRemovedAndCreatedAgainHasChangedTwice() throws {
    let folder = try Folder()
    folder.write("a", to: "one")
    try folder.watch("one")
    folder.remove("one")
    #expect(folder.changes() == ["one"])
    folder.write("b", to: "one")
    #expect(folder.changes() == ["one"])
  }

  @Test func aFileThatDoesNotExistYetIsWatched() throws {
    let folder = try Folder()
    try folder.watch("inner/one")
    folder.makeFolder("inner")
    folder.write("a", to: "inner/one")
    #expect(folder.changes() == ["inner/one"])
  }

  /// Kubernetes mounts `one` -> `..data/one` and `..data` -> `..1`, and replaces `..data`.
  @Test func aFileBehindASymbolicLinkThatIsReplacedHasChanged() throws {
    let folder = try Folder()
    for version in 1...3 {
      folder.makeFolder("..\(version)")
      folder.write("version \(version)", to: "..\(version)/one")
    }
    folder.link("..data", to: "..1")
    folder.link("one", to: "..data/one")
    try folder.watch("one")
    for version in 2...3 {
      folder.link("..data", to: "..\(version)")
      folder.remove("..\(version - 1)")
      #expect(folder.changes() == ["one"], "version \(version)")
    }
    // The watcher also watches the new target of the link.
    folder.write("written in place", to: "..3/one")
    #expect(folder.changes() == ["one"])
  }

  @Test func aDirectoryOnTheWayThatIsReplacedIsFollowed() throws {
    let folder = try Folder()
    for name in ["old", "new"] {
      folder.makeFolder(name)
      folder.write(name, to: name + "/one")
    }
    try folder.watch("old/one")
    folder.rename("old", to: "gone")
    folder.rename("new", to: "old")
    #expect(folder.changes() == ["old/one"])
    folder.write("again", to: "old/one")
    #expect(folder.changes() == ["old/one"])
  }

  @Test func aChangeBeforeTheWatchIsReported() throws {
    let folder = try Folder()
    folder.write("a", to: "one")
    let before = FileFingerprint(of: folder.file("one"))
    folder.write("bc", to: "one")
    try folder.watcher.watch([folder.file("one"): before], now: ProcessInformation.monotonicTime())
    #expect(folder.changes() == ["one"])
  }

  @Test func manyChangesInARowAreOneReportAndOtherFilesAreNone() throws {
    let folder = try Folder()
    folder.write("a", to: "one")
    try folder.watch("one")
    let watches = folder.watcher.watchCount
    var now = ProcessInformation.monotonicTime()
    let start = now
    for number in 0..<1_000 {
      folder.write("\(number)", to: "other")
      folder.write("\(number)", to: "new")
      folder.rename("new", to: "one")
      // 10 ms pass after each change.
      now = now + .milliseconds(10)
      folder.watcher.readEvents(now: now)
    }
    // The watcher also reports a file that changes all the time, but not each change.
    #expect(folder.watcher.deadline == start + .milliseconds(10) + .seconds(2))
    #expect(folder.watcher.takeChanges(now: now).count == 1)
    #expect(folder.watcher.watchCount == watches)
    // Only events of the watched name count.
    folder.watcher.readEvents(now: now)
    #expect(folder.watcher.takeChanges(now: now).isEmpty)
    folder.write("alone", to: "other")
    folder.watcher.readEvents(now: now)
    #expect(folder.watcher.deadline == .distantFuture)
  }

  /// A file counts as settled between two of these changes.
  @Test func changesWithPausesAreReportedEveryTwoSeconds() throws {
    let folder = try Folder()
    folder.write("a", to: "one")
    try folder.watch("one")
    var now = ProcessInformation.monotonicTime()
    var reports = 0
    for number in 0..<40 {
      folder.write(String(repeating: "x", count: number + 2), to: "one")
      folder.watcher.readEvents(now: now)
      // 250 ms pass after each change.
      now = now + .milliseconds(250)
      if folder.watcher.deadline <= now { reports += folder.watcher.takeChanges(now: now).count }
    }
    // The reports come after 0.25, 2.25, 4.25, 6.25 and 8.25 s. The report of the last change comes after 10.25 s.
    #expect(reports == 5)
    #expect(folder.watcher.deadline == now + .milliseconds(250))
    #expect(folder.watcher.takeChanges(now: folder.watcher.deadline).count == 1)
  }

  @Test func aLoopOfSymbolicLinksEnds() throws {
    let folder = try Folder()
    folder.link("one", to: "two")
    folder.link("two", to: "one")
    #expect(DirectoryEntry.all(leadingTo: folder.file("one")).count < 100)
    #expect(throws: SystemError.self) { try folder.watch("one") }
  }

  @Test func theMainThreadIsWokenByOtherThreadsAndByDeadlines() throws {
    let events = try ProcessEvents(signals: [])
    #expect(events.wait(until: ProcessInformation.monotonicTime()) == .deadline)
    // Other events do not delay a deadline that has passed.
    events.wake()
    #expect(events.wait(until: ProcessInformation.monotonicTime()) == .deadline)
    #expect(events.wait(until: ProcessInformation.monotonicTime() + .seconds(60)) == .woken)
    #expect(DetachedThread.start(named: "waker") { events.wake() })
    #expect(events.wait(until: ProcessInformation.monotonicTime() + .seconds(60)) == .woken)
    #expect(events.wait(until: ProcessInformation.monotonicTime() + .milliseconds(1)) == .deadline)
  }
}
