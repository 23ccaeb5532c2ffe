/// Bytes that are written once and then only read, by any number of readers on any thread.
///
/// A push from the upstream is rendered into one of these, and every poll that returns it sends from the same memory.
@safe
package final class SharedBytes: Sendable {
  // Sendable without a lock because nothing writes here after `init` has returned.
  private nonisolated(unsafe) let base: UnsafeMutableRawPointer
  package let count: Int

  package init(copying span: Span<UInt8>) {
    unsafe base = UnsafeMutableRawPointer.allocate(byteCount: max(span.count, 1), alignment: 16)
    count = span.count
    unsafe span.withUnsafeBytes { source in
      if let start = source.baseAddress { unsafe base.copyMemory(from: start, byteCount: source.count) }
    }
  }

  package convenience init(_ bytes: [UInt8]) { self.init(copying: bytes.span) }

  deinit { unsafe base.deallocate() }

  package var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    @inline(__always) get {
      let start = unsafe UnsafePointer(base.assumingMemoryBound(to: UInt8.self))
      return unsafe _overrideLifetime(Span(_unsafeStart: start, count: count), borrowing: self)
    }
  }

  /// Where the bytes lie, for a gathering write. Valid while this object is alive.
  @unsafe package var baseAddress: UnsafeRawPointer { unsafe UnsafeRawPointer(base) }
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
