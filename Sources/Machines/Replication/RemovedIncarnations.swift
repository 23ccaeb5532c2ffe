import ByteStreams

/// The incarnations of the sessions that were removed last, with their close codes. A removal is final, and an
/// incarnation is never used again.
package struct RemovedIncarnations: Sendable {
  /// Maximum number of incarnations, both here and in `sessions:removed` of Redis. They take about 1 MiB in Redis, and
  /// half of that here. The limit keeps the memory small while clients create and close sessions. A failover can bring
  /// a removed session back for good only if this many other sessions were removed since.
  package static var limit: Int { 10_000 }

  private var codes: [UInt64: UInt16] = [:]
  /// The oldest incarnation is first.
  private var order = RingDeque(filler: UInt64(0))

  package init() {}

  package var count: Int { order.count }

  /// The close code of a removed session; nil if the session was not removed, or was removed too long ago.
  package func code(of incarnation: UInt64) -> UInt16? { codes[incarnation] }

  package mutating func insert(_ incarnation: UInt64, code: UInt16) {
    guard codes[incarnation] == nil else { return }
    codes[incarnation] = code
    order.append(incarnation)
    guard order.count > Self.limit else { return }
    codes[order[order.front]] = nil
    order.removeFirst()
  }
}
