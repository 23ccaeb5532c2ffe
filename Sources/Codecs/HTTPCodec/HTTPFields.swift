import ByteStreams

/// The fields of one head or trailer section: the received bytes and the position of each name and value.
///
/// One `HTTPFields` can be used for one head after another: `removeAll` keeps the memory, so the next head needs no
/// allocation.
@safe
package struct HTTPFields: ~Copyable {
  /// The position of one field, as offsets in bytes from the start of the section.
  struct Slot {
    var nameStart: UInt32
    var valueStart: UInt32
    var valueCount: UInt32
    var nameCount: UInt16
    var name: HTTPFieldName
  }

  /// The whole section as received, including its start line and line ends.
  var section = ByteQueue()
  /// One bit per `HTTPFieldName` that is present.
  private(set) var present: UInt64 = 0
  /// One bit per `HTTPFieldName` that is present more than once.
  private(set) var repeated: UInt64 = 0
  private var slots: UnsafeMutablePointer<Slot>?
  private var capacity = 0

  /// The number of field lines.
  package private(set) var count = 0

  package init() { unsafe slots = nil }

  deinit { unsafe slots?.deallocate() }

  package var isEmpty: Bool { count == 0 }

  /// Allocated memory in bytes.
  package var allocatedBytes: Int { section.allocatedBytes + capacity * MemoryLayout<Slot>.stride }

  // MARK: Reading

  /// The name of the field at `index`, as received.
  @_lifetime(borrow self)
  package func name(at index: Int) -> Span<UInt8> {
    let slot = self[index]
    let start = Int(slot.nameStart)
    return section.bytes.extracting(start..<start &+ Int(slot.nameCount))
  }

  /// The value of the field at `index`, without surrounding whitespace.
  @_lifetime(borrow self)
  package func value(at index: Int) -> Span<UInt8> {
    let slot = self[index]
    let start = Int(slot.valueStart)
    return section.bytes.extracting(start..<start &+ Int(slot.valueCount))
  }

  /// The known name of the field at `index`.
  package func field(at index: Int) -> HTTPFieldName { self[index].name }

  /// The known name of the last field. There must be at least one field.
  var lastField: HTTPFieldName { self[count &- 1].name }

  /// Whether `field` is present. Takes constant time.
  @inline(__always)
  package func contains(_ field: HTTPFieldName) -> Bool { present & (1 << UInt64(field.rawValue)) != 0 }

  /// Whether `field` is present more than once. Takes constant time.
  func isRepeated(_ field: HTTPFieldName) -> Bool { repeated & (1 << UInt64(field.rawValue)) != 0 }

  /// The index of the first `field` at or after `start`; nil if there is no such field.
  package func index(of field: HTTPFieldName, from start: Int = 0) -> Int? {
    guard contains(field) else { return nil }
    var index = start
    while index < count {
      if self[index].name == field { return index }
      index &+= 1
    }
    return nil
  }

  /// The first value of `field`; nil if the field is not present.
  @_lifetime(borrow self)
  package func first(_ field: HTTPFieldName) -> Span<UInt8>? {
    guard let index = index(of: field) else { return nil }
    return value(at: index)
  }

  /// The first value of the field `name`, which must be in lower case; nil if the field is not present.
  @_lifetime(borrow self)
  package func first(_ name: StaticString) -> Span<UInt8>? {
    var index = 0
    while index < count {
      if self.name(at: index).equalsIgnoringCase(name) { return value(at: index) }
      index &+= 1
    }
    return nil
  }

  /// Calls `body` with each element of a list-valued field, over all its lines in order (RFC 9110 §5.3, §5.6.1).
  /// Elements are split by `HTTPListElements`, with the kind of quotes that the field may have.
  package func forEachElement(of field: HTTPFieldName, _ body: (Span<UInt8>) -> Void) {
    var next = index(of: field)
    while let index = next {
      var elements = HTTPListElements(value(at: index), quoting: field.listQuoting)
      while let element = elements.next() { body(element) }
      next = self.index(of: field, from: index &+ 1)
    }
  }

  /// Whether a list-valued field contains `token`, ignoring case. `token` must be in lower case.
  package func list(_ field: HTTPFieldName, contains token: StaticString) -> Bool {
    var found = false
    forEachElement(of: field) { element in
      if element.equalsIgnoringCase(token) { found = true }
    }
    return found
  }

  /// Appends the lines of all end-to-end fields. Fields that concern one connection, or the framing of its messages,
  /// are left out (RFC 9110 §7.6.1).
  ///
  /// - Parameter isExcluded: further fields to leave out.
  package func appendEndToEnd(to output: inout ByteQueue, except isExcluded: (HTTPFieldName) -> Bool) {
    for index in 0..<count {
      let field = field(at: index)
      if field.concernsConnection || isExcluded(field) || isNamedByConnection(name(at: index)) { continue }
      output.append(name(at: index))
      output.append(": " as StaticString)
      output.append(value(at: index))
      output.append("\r\n" as StaticString)
    }
  }

  private func isNamedByConnection(_ name: Span<UInt8>) -> Bool {
    guard contains(.connection) else { return false }
    var found = false
    forEachElement(of: .connection) { if $0.equalsIgnoringCase(name) { found = true } }
    return found
  }

  // MARK: Filling

  subscript(index: Int) -> Slot {
    @inline(__always) get {
      precondition(index >= 0 && index < count, "no field at this index")
      return unsafe slots.unsafelyUnwrapped[index]
    }
  }

  /// Removes all fields and keeps the memory.
  mutating func removeAll() {
    section.removeAll()
    count = 0
    present = 0
    repeated = 0
  }

  @inline(__always)
  mutating func append(_ slot: Slot) {
    if count == capacity { grow() }
    unsafe (slots.unsafelyUnwrapped + count).initialize(to: slot)
    count &+= 1
    let bit: UInt64 = 1 << UInt64(slot.name.rawValue)
    repeated |= present & bit
    present |= bit
  }

  private mutating func grow() {
    let size = max(16, capacity * 2)
    let fresh = UnsafeMutablePointer<Slot>.allocate(capacity: size)
    if let slots = unsafe slots {
      unsafe fresh.initialize(from: slots, count: count)
      unsafe slots.deallocate()
    }
    unsafe slots = fresh
    capacity = size
  }
}
