import Glibc
import Testing

/// The longest wait for a fact. It only ends a test that has failed, so it leaves time for a busy machine.
package let patience = Duration.seconds(60)

/// Waits until another thread has made a fact true. The test fails after `limit`.
///
/// - Parameter what: the fact, for the message of the failure.
package func until(
  _ what: @autoclosure () -> String = "the fact of this line is true", within limit: Duration = patience,
  sourceLocation: SourceLocation = #_sourceLocation, _ fact: () async throws -> Bool
) async throws {
  let start = ContinuousClock.now
  while try await !fact() {
    let isPatient = ContinuousClock.now - start < limit
    try #require(isPatient, "never: \(what())", sourceLocation: sourceLocation)
    try await Task.sleep(for: .milliseconds(1))
  }
}

/// Blocks this thread until another thread has made a fact true. Returns false after `patience`.
package func eventually(_ fact: () throws -> Bool) rethrows -> Bool {
  let start = ContinuousClock.now
  while try !fact() {
    guard ContinuousClock.now - start < patience else { return false }
    usleep(1000)
  }
  return true
}

/// Like the function above, but the test fails if the fact does not become true.
package func eventually(
  _ what: String, sourceLocation: SourceLocation = #_sourceLocation, _ fact: () throws -> Bool
) throws {
  let isTrue = try eventually(fact)
  try #require(isTrue, "never: \(what)", sourceLocation: sourceLocation)
}
