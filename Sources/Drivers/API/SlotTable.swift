/// A table of values with small reusable keys. Adding and removing a value allocates nothing once the table has grown.
struct SlotTable<Value> {
  private var values: [Value?] = []
  private var free: [Int32] = []

  var count: Int { values.count - free.count }

  mutating func insert(_ value: consuming Value) -> Int {
    if let slot = free.popLast() {
      values[Int(slot)] = consume value
      return Int(slot)
    }
    // The table grows by an eighth. If its capacity doubled, half of a table for ten thousand held polls could be
    // unused.
    if values.count == values.capacity { values.reserveCapacity(values.count + max(32, values.count / 8)) }
    values.append(consume value)
    return values.count - 1
  }

  /// Returns nil for an empty slot.
  subscript(_ slot: Int) -> Value? { values[slot] }

  /// Changes a value. It is moved, since a copy would retain each of its members. Returns nil for an empty slot.
  @discardableResult
  mutating func change<Result>(_ slot: Int, _ body: (inout Value) -> Result) -> Result? {
    guard var value = values[slot].take() else { return nil }
    let result = body(&value)
    values[slot] = consume value
    return result
  }

  @discardableResult
  mutating func remove(_ slot: Int) -> Value? {
    // The value is moved out of the array, and so not copied.
    guard let value = values[slot].take() else { return nil }
    free.append(Int32(slot))
    return value
  }
}
