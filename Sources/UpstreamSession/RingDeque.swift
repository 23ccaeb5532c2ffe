/// A queue in a ring whose size is a power of two: appended at the end, taken from the front, read at any place.
///
/// Places are absolute: the first element ever has place 0, and a place never changes while its element is here. What has
/// left is overwritten with a filler, so that nothing it referred to is kept alive.
struct RingDeque<Element: Sendable>: Sendable {
  private let filler: Element
  private var storage: [Element] = []
  /// The place of the first element.
  private(set) var front = 0
  /// The place after the last element.
  private(set) var end = 0

  init(filler: Element) { self.filler = filler }

  var isEmpty: Bool { front == end }
  var count: Int { end &- front }

  subscript(place: Int) -> Element {
    @inline(__always) get {
      precondition(place >= front && place < end, "no such place in the queue")
      return storage[place & (storage.count &- 1)]
    }
    @inline(__always) _modify {
      precondition(place >= front && place < end, "no such place in the queue")
      yield &storage[place & (storage.count &- 1)]
    }
  }

  mutating func append(_ element: Element) {
    if count == storage.count { grow() }
    storage[end & (storage.count &- 1)] = element
    end &+= 1
  }

  mutating func removeFirst() {
    precondition(front < end, "nothing is left to remove")
    storage[front & (storage.count &- 1)] = filler
    front &+= 1
  }

  mutating func removeLast() {
    precondition(front < end, "nothing is left to remove")
    end &-= 1
    storage[end & (storage.count &- 1)] = filler
  }

  mutating func removeAll() {
    while !isEmpty { removeFirst() }
  }

  private mutating func grow() {
    var larger = [Element](repeating: filler, count: max(16, storage.count * 2))
    for place in front..<end { larger[place & (larger.count &- 1)] = storage[place & (storage.count &- 1)] }
    storage = larger
  }
}
