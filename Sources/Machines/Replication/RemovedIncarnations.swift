import ByteStreams

/// The sessions that were removed last, by their incarnations, with the codes with which they were closed. A removal is final, and an incarnation is
/// never used again.
package struct RemovedIncarnations: Sendable {
  /// As many as Redis keeps in `sessions:removed` (about 1 MiB there, half of that here). Stops: memory that grows with each session that clients create
  /// and close. Each of them can return with a failover only if so many others were not removed since.
  package static var limit: Int { 10_000 }

  private var codes: [UInt64: UInt16] = [:]
  /// The oldest one is first.
  private var order = RingDeque(filler: UInt64(0))

  package init() {}

  package var count: Int { order.count }

  /// The close code; nil if the session was not removed, or long ago.
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
