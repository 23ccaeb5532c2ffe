import ByteStreams
import HTTPServer
import Threading

/// Requests for reloads of the configuration (`POST /v1/reload`), and their outcome. Can be used from any thread.
package final class ReloadControl: Sendable {
  private struct State {
    /// The number of reloads since the start.
    var count = 0
    /// Whether the configuration that was read last is in effect. True until the first reload.
    var isValid = true
  }

  private let state = Locked(State())
  private let start: @Sendable () -> Void

  /// - Parameter start: makes the main thread reload the configuration, and returns at once.
  package init(_ start: @escaping @Sendable () -> Void = {}) { self.start = start }

  /// Records a reload. The main thread calls this.
  package func record(isValid: Bool) {
    state.withLock {
      $0.count += 1
      $0.isValid = isValid
    }
  }

  /// Starts a reload, and writes the state before the reload.
  func request(into output: inout ByteQueue) {
    write(into: &output)
    start()
  }

  /// Writes `{"reloads":2,"valid":true}`.
  func write(into output: inout ByteQueue) {
    let state = state.withLock { $0 }
    output.append("{\"reloads\":" as StaticString)
    output.append(decimal: state.count)
    output.append(",\"valid\":" as StaticString)
    output.append(state.isValid ? "true}\n" : "false}\n" as StaticString)
  }
}
