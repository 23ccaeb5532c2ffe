import ByteStreams
import Foundation
import Glibc
import Host
import Testing
import Threading

@testable import Reactor

@Suite struct BlockingWorkTests {
  private let pool = BlockingThreadPool()

  @Test func runsWorkOnDifferentSubjectsConcurrently() async {
    // Each job waits for all other jobs, so the test would not end with a single thread.
    let barrier = CountingSemaphore()
    let sum = await withTaskGroup(of: Int.self) { group in
      for number in 0..<8 {
        group.addTask {
          let work = BlockingWork(on: "\(number)", pool: pool) {
            if number == 7 { for _ in 0..<7 { barrier.signal() } } else { barrier.wait() }
            return number
          }
          return (try? await work.value().get()) ?? -100
        }
      }
      return await group.reduce(0, +)
    }
    #expect(sum == 28)
  }

  @Test func aHangingSubjectOccupiesOneThread() async throws {
    let hang = CountingSemaphore()
    let hanging = BlockingWork(on: "mount", pool: pool) { hang.wait() }
    let first = Task { await hanging.value() }
    while pool.threads == 0 { try await Task.sleep(for: .milliseconds(1)) }
    for _ in 0..<20 {
      let work = BlockingWork(on: "mount", pool: pool) { Issue.record("cancelled work has run") }
      guard case .failure(.unfinished) = work.wait(atMost: .milliseconds(1)) else {
        Issue.record("the work did not wait for the work before it")
        return
      }
    }
    #expect(pool.threads == 1)
    hanging.cancel()
    guard case .failure(.unfinished) = await first.value else {
      Issue.record("a waiter that cancels continues at once")
      return
    }
    // Further jobs run once the thread is free.
    let pool = pool
    let next = Task { await BlockingWork(on: "mount", pool: pool) { 7 }.value() }
    hang.signal()
    #expect(try await next.value.get() == 7)
  }

  @Test func failsIfTheSystemCreatesNoThread() async {
    let none = BlockingThreadPool { _ in false }
    #expect(await BlockingWork(on: "x", pool: none) { 1 }.value() == .failure(.threadNotStarted))
    #expect(BlockingWork(on: "x", pool: none) { 1 }.wait(atMost: .seconds(60)) == .failure(.threadNotStarted))
    #expect(none.threads == 0)
  }

  @Test func workOnMoreSubjectsWaitsForAThread() async throws {
    let hang = CountingSemaphore()
    for number in 0..<BlockingThreadPool.threadLimit {
      pool.add(BlockingWork(on: "\(number)", pool: pool) { hang.wait() })
    }
    let givenUp = BlockingWork(on: "x", pool: pool) {
      Issue.record("cancelled work has run")
      return 1
    }
    #expect(givenUp.wait(atMost: .milliseconds(1)) == .failure(.noFreeThread(limit: BlockingThreadPool.threadLimit)))
    // Two jobs on one subject and a job on another subject all run as threads become free.
    let results = Locked<[String]>([])
    let done = CountingSemaphore()
    for name in ["x", "y", "x"] {
      pool.add(
        BlockingWork(on: name, pool: pool) {
          results.withLock { $0.append(name) }
          done.signal()
        })
    }
    #expect(pool.threads == BlockingThreadPool.threadLimit)
    hang.signal()
    for _ in 0..<3 { #expect(done.wait(atMost: .seconds(60))) }
    #expect(results.withLock { $0 } == ["x", "x", "y"])
    for _ in 1..<BlockingThreadPool.threadLimit { hang.signal() }
    while pool.threads > 0 { try await Task.sleep(for: .milliseconds(1)) }
  }

  @Test func staysWithinItsLimitsIfEverySubjectHangs() {
    let hang = CountingSemaphore()
    let count = BlockingThreadPool.threadLimit + BlockingThreadPool.waitingLimit
    for number in 0..<count { pool.add(BlockingWork(on: "\(number)", pool: pool) { hang.wait() }) }
    #expect(pool.threads == BlockingThreadPool.threadLimit)
    #expect(
      BlockingWork(on: "x", pool: pool) { 1 }.wait(atMost: .seconds(60))
        == .failure(.noFreeThread(limit: BlockingThreadPool.threadLimit)))
    for _ in 0..<count { hang.signal() }
  }

  // MARK: Files

  private func contents(_ path: String, within span: TimeSpan = .seconds(60)) throws(FileError) -> String {
    String(decoding: try SystemFile.contents(of: path, atMost: 100, within: span), as: UTF8.self)
  }

  @Test func reportsWhyAFileCannotBeRead() {
    #expect(throws: FileError.failed(ENOENT)) { try contents("/no/such/file") }
    #expect(throws: FileError.failed(EISDIR)) { try contents("/tmp") }
    #expect(FileError.failed(ENOENT).description == "No such file or directory")
  }

  @Test func readsADeviceUpToTheLimit() throws {
    #expect(try contents("/dev/null") == "")
    #expect(try contents("/dev/zero").utf8.count == 100)
  }

  @Test func waitsForTheWriterOfAFIFO() throws {
    let path = "/tmp/fifo-\(getpid())-\(UInt32.random(in: 0 ... .max))"
    try #require(mkfifo(path, 0o600) == 0)
    defer { unlink(path) }
    let limit = TimeSpan.milliseconds(50)
    #expect(throws: FileError.timedOut(after: limit), "nobody writes") { try contents(path, within: limit) }
    #expect(
      DetachedThread.start(named: "writer") {
        let file = open(path, O_WRONLY)
        write(file, "secret", 6)
        close(file)
      })
    #expect(try contents(path) == "secret")
  }
}
