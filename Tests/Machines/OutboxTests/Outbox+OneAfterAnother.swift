import UpstreamSession

@testable import Outbox

/// Short forms for connections that follow one another: the sending connection and its predecessor.
extension Outbox {
  mutating func startSending() { startSending(on: (retiring?.connection ?? .none).next) }

  mutating func barrierSent(_ counter: UInt64, retired: Bool = false) {
    barrierSent(counter, on: (retired ? retiring : flight)?.connection ?? .none)
  }

  @discardableResult
  mutating func confirm(_ counter: UInt64, retired: Bool = false) -> Int {
    confirm(counter, on: (retired ? retiring : flight)?.connection ?? .none)
  }
}
