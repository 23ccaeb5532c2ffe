/// Weights by key, and the key with the largest weight. A change costs a dictionary lookup and the logarithm of the
/// number of keys. Keys without weight are not stored.
@usableFromInline
struct WeightTable: Sendable {
  private struct Slot: Sendable {
    let key: UInt64
    var weight: Int
    /// The position in `heap`.
    var position: Int
  }

  private var slots: [Slot] = []
  private var free: [Int] = []
  /// Indices of slots; each slot is at least as heavy as the two below it.
  private var heap: [Int] = []
  private var numbers: [UInt64: Int] = [:]
  /// The sum of all weights.
  @usableFromInline private(set) var sum = 0

  @usableFromInline init() {}

  @usableFromInline var count: Int { heap.count }

  @usableFromInline subscript(key: UInt64) -> Int { numbers[key].map { slots[$0].weight } ?? 0 }

  /// nil if no key has a weight.
  @usableFromInline var heaviest: (key: UInt64, weight: Int)? { heap.first.map { (slots[$0].key, slots[$0].weight) } }

  @usableFromInline
  mutating func add(_ change: Int, to key: UInt64) {
    guard change != 0 else { return }
    sum += change
    let number = numbers[key] ?? insert(key)
    slots[number].weight += change
    precondition(slots[number].weight >= 0, "more was given back than was taken")
    if slots[number].weight == 0 {
      remove(number)
    } else if change > 0 {
      rise(slots[number].position)
    } else {
      sink(slots[number].position)
    }
  }

  private mutating func insert(_ key: UInt64) -> Int {
    let slot = Slot(key: key, weight: 0, position: heap.count)
    let number = free.popLast() ?? slots.count
    if number == slots.count { slots.append(slot) } else { slots[number] = slot }
    heap.append(number)
    numbers[key] = number
    return number
  }

  private mutating func remove(_ number: Int) {
    let position = slots[number].position
    numbers[slots[number].key] = nil
    free.append(number)
    let last = heap.removeLast()
    guard last != number else { return }
    place(last, at: position)
    rise(position)
    sink(slots[last].position)
  }

  private mutating func place(_ number: Int, at position: Int) {
    heap[position] = number
    slots[number].position = position
  }

  private mutating func rise(_ start: Int) {
    var position = start
    let number = heap[position]
    while position > 0 {
      let above = (position - 1) / 2
      guard slots[heap[above]].weight < slots[number].weight else { break }
      place(heap[above], at: position)
      position = above
    }
    place(number, at: position)
  }

  private mutating func sink(_ start: Int) {
    var position = start
    let number = heap[position]
    while true {
      var below = 2 * position + 1
      guard below < heap.count else { break }
      if below + 1 < heap.count, slots[heap[below + 1]].weight > slots[heap[below]].weight { below += 1 }
      guard slots[heap[below]].weight > slots[number].weight else { break }
      place(heap[below], at: position)
      position = below
    }
    place(number, at: position)
  }
}
