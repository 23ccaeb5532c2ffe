/// Immutable bytes that any number of readers can use at once, on any thread.
///
/// A push from the upstream is rendered into a `ByteString`, and every poll that returns the push sends from the same
/// memory.
@safe
@usableFromInline
package struct ByteString: Sendable {
  @usableFromInline var storage: [UInt8]

  package init(copying span: Span<UInt8>) { storage = [UInt8](copying: span) }

  /// Takes over `bytes`. Copies them only if their spare capacity exceeds both 64 bytes and a quarter of their count.
  package init(_ bytes: [UInt8]) {
    let spare = bytes.capacity - bytes.count
    storage = spare > 64 && spare > bytes.count / 4 ? [UInt8](copying: bytes.span) : bytes
  }

  @inlinable package var count: Int { storage.count }

  /// Replaces a part of this value. Copies the whole value only if another value has the same memory. Must not be
  /// called after `baseAddress`.
  package mutating func replace(_ range: Range<Int>, with bytes: [UInt8]) {
    storage.replaceSubrange(range, with: bytes)
  }

  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    @inlinable @inline(__always) get { storage.span }
  }

  /// The address of the bytes, for a gathering write. There must be at least one byte. The address is valid while a
  /// copy of this value exists: an array's elements do not move until it is mutated.
  @unsafe package var baseAddress: UnsafeRawPointer {
    unsafe storage.withUnsafeBytes { unsafe $0.baseAddress.unsafelyUnwrapped }
  }
}

/// A range of a `ByteString`, which the slice keeps alive.
@usableFromInline
package struct ByteSlice: Sendable {
  @usableFromInline package let storage: ByteString
  @usableFromInline package let range: Range<Int>

  package init(_ storage: ByteString, range: Range<Int>) {
    precondition(range.lowerBound >= 0 && range.upperBound <= storage.count, "slice outside its storage")
    self.storage = storage
    self.range = range
  }

  package init(_ storage: ByteString) { self.init(storage, range: 0..<storage.count) }

  @inlinable package var count: Int { range.count }

  /// The bytes of the slice, without the rest of the storage: the storage itself if the slice covers all of it,
  /// otherwise a copy.
  package var standalone: ByteString { count == storage.count ? storage : ByteString(copying: bytes) }

  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    get { unsafe _overrideLifetime(storage.bytes.extracting(range), borrowing: self) }
  }

  /// The slice with the bytes of `part`; nil if `part` is not a part of `bytes` in the same memory.
  package func slice(of part: Span<UInt8>) -> ByteSlice? {
    storage.bytes.indices(of: part).map { ByteSlice(storage, range: $0) }
  }
}
