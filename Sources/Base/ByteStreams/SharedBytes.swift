/// Bytes that are written once and then only read, by any number of readers on any thread: an array that nobody can change.
///
/// A push from the upstream is rendered into one of these, and every poll that returns it sends from the same memory.
@safe
package struct SharedBytes: Sendable {
  private let storage: [UInt8]

  package init(copying span: Span<UInt8>) { storage = [UInt8](copying: span) }

  /// Takes `bytes` over without copying them, unless they were grown piece by piece into much more memory than they need.
  package init(_ bytes: [UInt8]) {
    let spare = bytes.capacity - bytes.count
    storage = spare > 64 && spare > bytes.count / 4 ? [UInt8](copying: bytes.span) : bytes
  }

  package var count: Int { storage.count }

  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    @inline(__always) get { storage.span }
  }

  /// Where the bytes lie, for a gathering write; there must be some. Valid for as long as a copy of this value is alive: an
  /// array's elements stay where they are until it is changed, and this one never is.
  @unsafe package var baseAddress: UnsafeRawPointer {
    unsafe storage.withUnsafeBytes { unsafe $0.baseAddress.unsafelyUnwrapped }
  }
}

/// A part of some `SharedBytes`, kept alive by the slice.
package struct SharedSlice: Sendable {
  package let storage: SharedBytes
  package let range: Range<Int>

  package init(_ storage: SharedBytes, range: Range<Int>) {
    precondition(range.lowerBound >= 0 && range.upperBound <= storage.count, "slice outside its storage")
    self.storage = storage
    self.range = range
  }

  package init(_ storage: SharedBytes) { self.init(storage, range: 0..<storage.count) }

  package var count: Int { range.count }

  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    get { unsafe _overrideLifetime(storage.bytes.extracting(range), borrowing: self) }
  }
}
