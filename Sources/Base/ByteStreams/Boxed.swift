/// A value on the heap, which all copies of the box use together. A change makes a new object, so it changes no copy.
///
/// For large values that seldom change and have many copies, such as the settings of sessions.
package struct Boxed<Value: Sendable>: Sendable {
  private final class Storage: Sendable {
    let value: Value

    init(_ value: Value) { self.value = value }
  }

  private var storage: Storage

  package init(_ value: Value) { storage = Storage(value) }

  package var value: Value {
    _read { yield storage.value }
    set { storage = Storage(newValue) }
  }
}

extension Boxed: Equatable where Value: Equatable {
  package static func == (one: Boxed, other: Boxed) -> Bool {
    one.storage === other.storage || one.value == other.value
  }
}
