import ByteStreams

/// The acknowledgement that an event asks for: ids are counted in each namespace.
struct AcknowledgementID: Hashable {
  let namespace: Int
  let id: UInt64
}

/// Acknowledgements that one side is to send. Beyond the limit, the oldest are forgotten.
struct PendingAcknowledgements: Sendable {
  private let limit: Int
  private var ids: Set<AcknowledgementID> = []
  /// In the order of their events, with some that are not pending any more.
  private var order = RingDeque(filler: AcknowledgementID(namespace: 0, id: 0))

  init(limit: Int) { self.limit = limit }

  mutating func insert(_ id: AcknowledgementID) {
    guard ids.insert(id).inserted else { return }
    order.append(id)
    while !order.isEmpty, ids.count > limit || !ids.contains(order[order.front]) {
      ids.remove(order[order.front])
      order.removeFirst()
    }
    // An old one that stays pending must not make the order grow.
    guard order.count > 2 * limit else { return }
    var pending = RingDeque(filler: AcknowledgementID(namespace: 0, id: 0))
    for index in order.front..<order.end where ids.contains(order[index]) { pending.append(order[index]) }
    order = pending
  }

  /// Returns whether it was pending.
  @discardableResult mutating func remove(_ id: AcknowledgementID) -> Bool { ids.remove(id) != nil }

  /// Removes and returns the ids of a namespace, lowest first.
  mutating func removeAll(of namespace: Int) -> [UInt64] {
    let removed = ids.filter { $0.namespace == namespace }
    ids.subtract(removed)
    return removed.map(\.id).sorted()
  }
}
