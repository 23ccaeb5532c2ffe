/// A binary heap with the smallest element first.
struct MinimumHeap<Element: Comparable & Sendable>: Sendable {
  private var elements: [Element] = []

  init() {}

  init(_ elements: some Sequence<Element>) {
    for element in elements { insert(element) }
  }

  var count: Int { elements.count }
  var first: Element? { elements.first }

  mutating func insert(_ element: Element) {
    elements.append(element)
    var index = elements.count - 1
    while index > 0 {
      let parent = (index - 1) / 2
      guard elements[index] < elements[parent] else { return }
      elements.swapAt(index, parent)
      index = parent
    }
  }

  /// Removes the smallest element, which must exist.
  mutating func removeFirst() {
    elements.swapAt(0, elements.count - 1)
    elements.removeLast()
    var index = 0
    while true {
      var child = 2 * index + 1
      guard child < elements.count else { return }
      if child + 1 < elements.count, elements[child + 1] < elements[child] { child += 1 }
      guard elements[child] < elements[index] else { return }
      elements.swapAt(index, child)
      index = child
    }
  }
}
