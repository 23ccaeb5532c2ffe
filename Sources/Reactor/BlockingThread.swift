import Threading

/// Work that blocks, on a thread made for it: for what is seldom, such as reading a secret before a dial.
package enum BlockingThread {
  /// Runs `work` and answers what it does.
  package static func run<Outcome: Sendable>(_ work: @escaping @Sendable () -> Outcome) async -> Outcome {
    unsafe await withUnsafeContinuation { continuation in
      let resume: @Sendable () -> Void = { unsafe continuation.resume(returning: work()) }
      // Where no thread is to be had, late is better than never.
      if !DetachedThread.start(named: "blocking", resume) { resume() }
    }
  }
}
