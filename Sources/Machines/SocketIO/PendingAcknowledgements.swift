import ByteStreams

/// Identifies the acknowledgement that an event requests. Ids are counted in each namespace.
struct AcknowledgementID: Hashable {
  let namespace: Int
  let id: UInt64
}

/// Acknowledgements that one side has to send. Above the limit, the oldest are forgotten.
struct PendingAcknowledgements: Sendable {
  private let limit: Int
  private var ids: Set<AcknowledgementID> = []
  /// In the order of their events. Includes ids that are no longer pending.
  private var order = RingDeque(filler: AcknowledgementID(namespace: 0, id: 0))

  init(limit: Int) { self.limit = limit }

  mutating func insert(_ id: AcknowledgementID) {
    guard ids.insert(id).inserted else { return }
    order.append(id)
    while !order.isEmpty, ids.count > limit || !ids.contains(order[order.front]) {
      ids.remove(order[order.front])
      order.removeFirst()
    }
    // An old acknowledgement that stays pending at the front must not make `order` grow.
    guard order.count > 2 * limit else { return }
    var pending = RingDeque(filler: AcknowledgementID(namespace: 0, id: 0))
    for index in order.front..<order.end where ids.contains(order[index]) { pending.append(order[index]) }
    order = pending
  }

  /// Returns whether the acknowledgement was pending.
  @discardableResult mutating func remove(_ id: AcknowledgementID) -> Bool { ids.remove(id) != nil }

  /// Removes and returns the ids of a namespace, lowest first.
  mutating func removeAll(of namespace: Int) -> [UInt64] {
    let removed = ids.filter { $0.namespace == namespace }
    ids.subtract(removed)
    return removed.map(\.id).sorted()
  }
}
