import ByteStreams
import CZlib

/// Why decompression failed.
package enum InflateError: Error, Hashable, Sendable {
  /// The input is not DEFLATE data, is not wrapped as expected, or has a wrong checksum.
  case malformed
  /// The output would exceed the limit.
  case tooLarge
}

/// Decompresses a DEFLATE stream (RFC 1951) that arrives in pieces.
///
/// Memory: 2^(window bits) bytes plus about 7 KiB (39 KiB for gzip and zlib), allocated with the first byte.
@safe
package struct Inflater: ~Copyable {
  /// The wrapper format of the stream.
  package enum Format: Sendable {
    /// No wrapper. The stream has no end: after a final block it continues with the same compression history. RFC 7692
    /// §7.2.3.5 allows final blocks in a message.
    case raw(windowBits: Int)
    /// gzip (RFC 1952) or zlib (RFC 1950), detected from the first bytes. Several gzip members may follow one another.
    case gzipOrZlib
  }

  private let format: Format
  /// The stream is allocated separately, since zlib keeps its address.
  private var stream: UnsafeMutablePointer<z_stream>?
  /// Whether a wrapped stream has reached its end. If the input ends before that, the stream was truncated.
  package private(set) var hasEnded = false
  /// Whether the input has ended with a final block of a raw stream.
  package private(set) var isAfterFinalBlock = false

  package init(_ format: Format) {
    self.format = format
    unsafe stream = nil
  }

  deinit {
    guard let stream = unsafe stream else { return }
    unsafe inflateEnd(stream)
    unsafe stream.deallocate()
  }

  /// Allocated memory in bytes, according to zlib's documentation.
  package var allocatedBytes: Int { unsafe stream == nil ? 0 : 7 * 1024 + 1 << Int(windowBits) }

  /// Decompresses `input` and appends the result. Throws if `output` would have more than `limit` bytes. After an error
  /// the stream must not be used any more.
  package mutating func inflate(
    _ input: Span<UInt8>, into output: inout ByteQueue, limit: Int
  ) throws(InflateError) {
    var offset = 0
    while offset < input.count {
      if hasEnded { try beginNextMember(input[offset]) }
      isAfterFinalBlock = false
      offset += try advance(input.extracting(offset..<input.count), into: &output, limit: limit)
    }
  }

  /// Discards the compression history. The next byte begins a new stream.
  package mutating func reset() {
    if let stream = unsafe stream { unsafe inflateReset(stream) }
    hasEnded = false
    isAfterFinalBlock = false
  }

  /// Decompresses until the end of the input or of a stream. Returns the number of input bytes consumed.
  private mutating func advance(
    _ input: Span<UInt8>, into output: inout ByteQueue, limit: Int
  ) throws(InflateError) -> Int {
    let stream = unsafe prepared()
    let offered = min(input.count, Int(UInt32.max))
    let result = unsafe input.withUnsafeBytes { bytes -> Int32 in
      unsafe stream.pointee.next_in = unsafe UnsafeMutablePointer(
        mutating: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
      unsafe stream.pointee.avail_in = UInt32(offered)
      var result: Int32
      repeat {
        unsafe result = Self.step(stream, into: &output, limit: limit)
      } while unsafe result == Z_OK && stream.pointee.avail_out == 0 && output.count <= limit
      unsafe stream.pointee.next_in = nil
      return result
    }
    guard output.count <= limit else { throw .tooLarge }
    switch result {
    case Z_STREAM_END:
      switch format {
      // `inflateResetKeep` is undocumented. It keeps the window at no cost. The documented way copies 32 KiB out and in
      // for each final block. An empty final block has two bytes, so a message of such blocks would take minutes.
      case .raw:
        unsafe inflateResetKeep(stream)
        isAfterFinalBlock = true
      case .gzipOrZlib: hasEnded = true
      }
    // Z_BUF_ERROR means that no progress was possible, because all input was consumed.
    case Z_OK, Z_BUF_ERROR: break
    case Z_MEM_ERROR: preconditionFailure("zlib could not allocate a window")
    default: throw .malformed
    }
    return unsafe offered &- Int(stream.pointee.avail_in)
  }

  /// Calls zlib once. Its output ends one byte above `limit` at the latest: this byte shows that the limit is exceeded,
  /// and the rest of a larger output takes no memory.
  private static func step(
    _ stream: UnsafeMutablePointer<z_stream>, into output: inout ByteQueue, limit: Int
  ) -> Int32 {
    let allowed = max(1, limit &- output.count &+ 1)
    let wanted = unsafe max(512, min(Int(stream.pointee.avail_in) &* 4, 64 * 1024))
    var result = Z_OK
    _ = unsafe output.withWritableBytes(minimum: min(allowed, wanted)) { room in
      let size = min(room.count, allowed, Int(UInt32.max))
      unsafe stream.pointee.next_out = unsafe room.baseAddress?.assumingMemoryBound(to: UInt8.self)
      unsafe stream.pointee.avail_out = UInt32(size)
      unsafe result = CZlib.inflate(stream, Z_SYNC_FLUSH)
      unsafe stream.pointee.next_out = nil
      return unsafe size &- Int(stream.pointee.avail_out)
    }
    return result
  }

  /// Begins the next gzip member (RFC 1952 §2.2) after a member has ended. Throws if other data follows the member.
  private mutating func beginNextMember(_ first: UInt8) throws(InflateError) {
    guard first == 0x1F else { throw .malformed }
    reset()
  }

  private var windowBits: Int32 {
    switch format {
    case .raw(let bits): Int32(bits)
    case .gzipOrZlib: 15
    }
  }

  private mutating func prepared() -> UnsafeMutablePointer<z_stream> {
    if let stream = unsafe stream { return unsafe stream }
    let fresh = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
    unsafe fresh.initialize(to: z_stream())
    let result =
      switch format {
      case .raw: unsafe czlib_inflate_init(fresh, -windowBits)
      // With 32 added, zlib detects the format.
      case .gzipOrZlib: unsafe czlib_inflate_init(fresh, windowBits + 32)
      }
    precondition(result == Z_OK, "zlib could not allocate an inflater")
    unsafe stream = unsafe fresh
    return unsafe fresh
  }
}
