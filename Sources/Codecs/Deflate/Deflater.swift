import ByteStreams
import CZlib

/// Compresses a stream of messages with DEFLATE (RFC 1951). Each message ends with a sync flush.
///
/// Memory: 2^(window bits + 2) + 2^(memory level + 9) bytes plus about 6 KiB. That is 38 KiB at window bits 12 and
/// memory level 5, and 262 KiB at 15 and 8. Nothing is allocated before the first byte.
@safe
package struct Deflater: ~Copyable {
  /// The wrapper format of the stream.
  package enum Format: Sendable {
    case raw
    /// RFC 1950; called `deflate` in HTTP.
    case zlib
    /// RFC 1952.
    case gzip
  }

  private let format: Format
  private let level: Int32
  private let windowBits: Int32
  private let memoryLevel: Int32
  /// The stream is allocated separately, since zlib keeps its address.
  private var stream: UnsafeMutablePointer<z_stream>?

  /// `windowBits` 9...15 (zlib does not support 8 for raw streams), `level` 1...9, `memoryLevel` 1...9.
  package init(_ format: Format = .raw, windowBits: Int = 12, level: Int = 6, memoryLevel: Int = 5) {
    precondition((9...15).contains(windowBits), "DEFLATE takes window bits 9 to 15")
    precondition((1...9).contains(level) && (1...9).contains(memoryLevel), "zlib takes levels 1 to 9")
    self.format = format
    self.windowBits = Int32(windowBits)
    self.level = Int32(level)
    self.memoryLevel = Int32(memoryLevel)
    unsafe stream = nil
  }

  deinit {
    guard let stream = unsafe stream else { return }
    unsafe deflateEnd(stream)
    unsafe stream.deallocate()
  }

  /// Allocated memory in bytes, according to zlib's documentation.
  package var allocatedBytes: Int {
    unsafe stream == nil ? 0 : 1 << (Int(windowBits) + 2) + 1 << (Int(memoryLevel) + 9) + 6 * 1024
  }

  /// Compresses `input` and appends the result. The result is flushed to a byte boundary, so it ends with `00 00 FF
  /// FF`. For empty input right after a flush, zlib writes no bytes.
  package mutating func compress(_ input: Span<UInt8>, into output: inout ByteQueue) {
    run(input, Z_SYNC_FLUSH, into: &output)
  }

  /// Compresses `input`. A part of the result may be written only by the next call.
  package mutating func append(_ input: Span<UInt8>, into output: inout ByteQueue) {
    run(input, Z_NO_FLUSH, into: &output)
  }

  /// Ends the stream: writes its last block, and its checksum if the format has one. `reset()` starts another stream.
  package mutating func finish(into output: inout ByteQueue) { run(Span(), Z_FINISH, into: &output) }

  /// Discards the compression history, so that the next message can be decompressed without the earlier messages.
  package mutating func reset() {
    if let stream = unsafe stream { unsafe deflateReset(stream) }
  }

  private mutating func run(_ input: Span<UInt8>, _ flush: Int32, into output: inout ByteQueue) {
    precondition(input.count <= UInt32.max, "a message of 4 GiB or more")
    let stream = unsafe prepared()
    unsafe input.withUnsafeBytes { bytes in
      unsafe stream.pointee.next_in = unsafe UnsafeMutablePointer(
        mutating: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
      unsafe stream.pointee.avail_in = UInt32(bytes.count)
      repeat {
        // The room must be more than 6 bytes. With less room, zlib would write a second flush marker when the buffer is
        // full (zlib.h, `deflate`).
        let minimum = unsafe 64 + min(Int(stream.pointee.avail_in), 64 * 1024)
        _ = unsafe output.withWritableBytes(minimum: minimum) { room in
          let size = UInt32(clamping: room.count)
          unsafe stream.pointee.next_out = unsafe room.baseAddress?.assumingMemoryBound(to: UInt8.self)
          unsafe stream.pointee.avail_out = size
          let result = unsafe deflate(stream, flush)
          precondition(result == Z_OK || result == Z_BUF_ERROR || result == Z_STREAM_END, "zlib refused to deflate")
          return unsafe Int(size &- stream.pointee.avail_out)
        }
      } while unsafe stream.pointee.avail_out == 0
      unsafe stream.pointee.next_in = nil
      unsafe stream.pointee.next_out = nil
    }
  }

  private mutating func prepared() -> UnsafeMutablePointer<z_stream> {
    if let stream = unsafe stream { return unsafe stream }
    let fresh = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
    unsafe fresh.initialize(to: z_stream())
    let bits =
      switch format {
      case .raw: -windowBits
      case .zlib: windowBits
      case .gzip: windowBits + 16
      }
    let result = unsafe czlib_deflate_init(fresh, level, bits, memoryLevel)
    precondition(result == Z_OK, "zlib could not allocate a deflater")
    unsafe stream = unsafe fresh
    return unsafe fresh
  }
}
