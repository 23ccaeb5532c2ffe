import CBytes

/// A growable byte buffer with a single owner. Bytes are appended at the end and consumed from the front.
///
/// Nothing is allocated before the first byte, and `releaseStorage()` frees everything, so an idle connection has no
/// buffer. Consuming only advances an offset. Bytes move to the front only when room at the end is needed.
@safe
@usableFromInline
package struct ByteQueue: ~Copyable, Sendable {
  // `nonisolated(unsafe)`, since the memory has a single owner.
  @usableFromInline nonisolated(unsafe) var base: UnsafeMutableRawPointer?
  @usableFromInline var capacity = 0
  @usableFromInline var head = 0
  @usableFromInline var tail = 0

  package init() { unsafe base = nil }

  package init(capacity: Int) {
    unsafe base = nil
    if capacity > 0 { grow(toHold: capacity) }
  }

  deinit { unsafe cbytes_free(base) }

  /// Number of readable bytes.
  @inlinable @inline(__always) package var count: Int { tail &- head }
  @inlinable @inline(__always) package var isEmpty: Bool { tail == head }
  /// Allocated capacity in bytes.
  package var allocatedBytes: Int { capacity }

  /// The readable bytes, oldest first.
  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    @inlinable @inline(__always) get {
      guard let base = unsafe base else { return Span() }
      let start = unsafe (base + head).assumingMemoryBound(to: UInt8.self)
      return unsafe _overrideLifetime(Span(_unsafeStart: UnsafePointer(start), count: count), borrowing: self)
    }
  }

  /// Removes `count` bytes from the front. `count` must not exceed `self.count`.
  @inlinable package mutating func consume(_ count: Int) {
    precondition(count >= 0 && count <= self.count, "consumed more than was readable")
    head &+= count
    if head == tail {
      head = 0
      tail = 0
    }
  }

  /// Removes `count` bytes from the end. `count` must not exceed `self.count`.
  @inlinable package mutating func removeLast(_ count: Int) {
    precondition(count >= 0 && count <= self.count, "removed more than was readable")
    tail &-= count
  }

  /// Removes `count` bytes at `offset` and closes the gap.
  package mutating func remove(_ count: Int, at offset: Int) {
    precondition(count >= 0 && offset >= 0 && offset &+ count <= self.count, "removed more than was readable")
    guard count > 0, let base = unsafe base else { return }
    let start = head &+ offset
    unsafe (base + start).copyMemory(from: base + start + count, byteCount: tail &- start &- count)
    tail &-= count
  }

  /// Removes every byte and keeps the memory.
  @inlinable package mutating func removeAll() {
    head = 0
    tail = 0
  }

  /// Removes every byte and frees the memory.
  package mutating func releaseStorage() {
    unsafe cbytes_free(base)
    unsafe base = nil
    capacity = 0
    head = 0
    tail = 0
  }

  /// Frees unused capacity if it exceeds the readable bytes. Small buffers keep their capacity. While a queue drains,
  /// all calls of this function together copy at most as many bytes as the queue had at the start.
  package mutating func releaseSpareCapacity() {
    guard capacity > Self.smallCapacity, capacity &- count > count else { return }
    reallocate(max(count, Self.smallCapacity))
  }

  /// Buffers up to this size, in bytes, keep their spare capacity: freeing it is not worth a copy.
  private static var smallCapacity: Int { 4096 }

  /// Makes room for `count` more bytes at the end.
  @inlinable @inline(__always)
  package mutating func reserve(_ count: Int) {
    if capacity &- tail < count { makeRoom(count) }
  }

  @inlinable package mutating func append(_ bytes: Span<UInt8>) {
    guard !bytes.isEmpty else { return }
    reserve(bytes.count)
    unsafe bytes.withUnsafeBytes { source in
      unsafe (base.unsafelyUnwrapped + tail).copyMemory(
        from: source.baseAddress.unsafelyUnwrapped, byteCount: source.count)
    }
    tail &+= bytes.count
  }

  package mutating func append(_ bytes: [UInt8]) { append(bytes.span) }

  @inlinable package mutating func append(_ text: StaticString) {
    let count = text.utf8CodeUnitCount
    guard count > 0 else { return }
    reserve(count)
    unsafe (base.unsafelyUnwrapped + tail).copyMemory(from: text.utf8Start, byteCount: count)
    tail &+= count
  }

  /// Disfavoured, so that a literal selects the overload for `StaticString` and is not converted to a `String` first.
  @_disfavoredOverload
  package mutating func append(_ text: String) {
    append(text.utf8Span.span)
  }

  @inlinable package mutating func append(_ byte: UInt8) {
    reserve(1)
    unsafe (base.unsafelyUnwrapped + tail).storeBytes(of: byte, as: UInt8.self)
    tail &+= 1
  }

  /// Appends `value` in decimal digits.
  package mutating func append(decimal value: UInt64) {
    reserve(20)
    var value = value
    var digits = 1
    var bound: UInt64 = 10
    while digits < 20, value >= bound {
      digits &+= 1
      if digits < 20 { bound &*= 10 }
    }
    tail &+= digits
    var end = unsafe base.unsafelyUnwrapped + tail
    // Two digits per division, since divisions take most of the time.
    while value >= 10 {
      let (quotient, pair) = value.quotientAndRemainder(dividingBy: 100)
      let ones = 48 &+ pair % 10
      unsafe end -= 2
      unsafe end.storeBytes(of: UInt16(truncatingIfNeeded: ones << 8 | (48 &+ pair / 10)), as: UInt16.self)
      value = quotient
    }
    if digits & 1 == 1 { unsafe (end - 1).storeBytes(of: UInt8(truncatingIfNeeded: 48 &+ value), as: UInt8.self) }
  }

  package mutating func append(decimal value: Int) {
    if value < 0 { append(UInt8(ascii: "-")) }
    append(decimal: UInt64(value.magnitude))
  }

  /// Appends the last `digits` decimal digits of `value`, padded with leading zeros. `value` must not be negative.
  package mutating func append(decimal value: Int, digits: Int) {
    reserve(digits)
    var value = value
    for position in stride(from: tail &+ digits &- 1, through: tail, by: -1) {
      unsafe (base.unsafelyUnwrapped + position).storeBytes(
        of: UInt8(truncatingIfNeeded: 48 &+ value % 10), as: UInt8.self)
      value /= 10
    }
    tail &+= digits
  }

  /// Appends the last `digits` hexadecimal digits of `value` in lower case, or only the significant digits if `digits`
  /// is nil.
  package mutating func append(hexadecimal value: UInt64, digits: Int? = nil) {
    var shift = 4 &* ((digits ?? max(1, (67 &- value.leadingZeroBitCount) / 4)) &- 1)
    while shift >= 0 {
      let digit = UInt8(truncatingIfNeeded: value >> UInt64(shift) & 15)
      append(digit < 10 ? digit &+ 0x30 : digit &+ 0x57)
      shift &-= 4
    }
  }

  /// Passes at least `minimum` writable bytes at the end to `body`, which returns how many it wrote. Returns that
  /// number.
  @inlinable package mutating func withWritableBytes(
    minimum: Int, _ body: (UnsafeMutableRawBufferPointer) -> Int
  ) -> Int {
    reserve(max(minimum, 1))
    let room = unsafe UnsafeMutableRawBufferPointer(start: base.unsafelyUnwrapped + tail, count: capacity &- tail)
    let written = unsafe body(room)
    precondition(written >= 0 && written <= room.count, "wrote past the end of the room")
    tail &+= written
    return written
  }

  /// The readable bytes as an array. For tests and code that is not performance-critical.
  package func copyBytes() -> [UInt8] { [UInt8](copying: bytes) }

  @usableFromInline mutating func makeRoom(_ count: Int) {
    let readable = tail &- head
    if readable &+ count <= capacity, head >= readable {
      // `head` bytes were consumed since the last move, and no more than `head` bytes are moved now.
      if let base = unsafe base {
        unsafe base.copyMemory(from: base + head, byteCount: readable)
      }
      head = 0
      tail = readable
    } else {
      grow(toHold: readable &+ count)
    }
  }

  private mutating func grow(toHold needed: Int) {
    var size = max(capacity, 256)
    while size < needed { size &*= 2 }
    reallocate(size)
  }

  private mutating func reallocate(_ size: Int) {
    capacity = size
    // The copy of a large block would take a turn of the loop milliseconds.
    if head == 0 {
      unsafe base = cbytes_reallocate(base, size)
      return
    }
    let readable = tail &- head
    let fresh = unsafe cbytes_reallocate(nil, size)
    if let base = unsafe base, let fresh = unsafe fresh {
      unsafe fresh.copyMemory(from: base + head, byteCount: readable)
    }
    unsafe cbytes_free(base)
    unsafe base = fresh
    head = 0
    tail = readable
  }
}

extension [UInt8] {
  /// A copy of `span`.
  package init(copying span: Span<UInt8>) {
    self = unsafe span.withUnsafeBytes { unsafe Array($0) }
  }
}
