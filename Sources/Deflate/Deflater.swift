import ByteStreams
import CZlib

/// Compresses a stream of messages as raw DEFLATE (RFC 1951), each ending with a sync flush.
///
/// Memory: 2^(window + 2) + 2^(memory level + 9) bytes, and some 6 KiB: 39 KiB at window 12 and memory level 5, 268 KiB at
/// window 15 and memory level 8. Nothing is allocated before the first byte.
@safe
package struct Deflater: ~Copyable {
  private let level: Int32
  private let windowBits: Int32
  private let memoryLevel: Int32
  /// zlib keeps the address of its stream, so it must not move.
  private var stream: UnsafeMutablePointer<z_stream>?

  /// `windowBits` 9...15 (zlib cannot do 8 for raw streams), `level` 1...9, `memoryLevel` 1...9.
  package init(windowBits: Int, level: Int, memoryLevel: Int) {
    precondition((9...15).contains(windowBits), "raw DEFLATE takes window bits 9 to 15")
    self.windowBits = Int32(windowBits)
    self.level = Int32(level)
    self.memoryLevel = Int32(memoryLevel)
    unsafe stream = nil
  }

  deinit {
    if let stream = unsafe stream {
      unsafe deflateEnd(stream)
      unsafe stream.deallocate()
    }
  }

  /// Appends the compressed form of `input`, flushed to a byte boundary: it ends with `00 00 FF FF`.
  package mutating func compress(_ input: Span<UInt8>, into output: inout ByteQueue) {
    let stream = unsafe prepared()
    unsafe input.withUnsafeBytes { bytes in
      unsafe stream.pointee.next_in = unsafe UnsafeMutablePointer(
        mutating: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
      unsafe stream.pointee.avail_in = UInt32(clamping: bytes.count)
      repeat {
        _ = unsafe output.withWritableBytes(minimum: 64 + min(bytes.count, 64 * 1024)) { room in
          unsafe stream.pointee.next_out = unsafe room.baseAddress?.assumingMemoryBound(to: UInt8.self)
          unsafe stream.pointee.avail_out = UInt32(clamping: room.count)
          let offered = unsafe Int(stream.pointee.avail_out)
          let result = unsafe deflate(stream, Z_SYNC_FLUSH)
          precondition(result == Z_OK || result == Z_BUF_ERROR, "zlib refused to deflate")
          return unsafe offered - Int(stream.pointee.avail_out)
        }
      } while unsafe stream.pointee.avail_out == 0
    }
  }

  /// Forgets the history: the next message can be read without this one.
  package mutating func reset() {
    if let stream = unsafe stream { unsafe deflateReset(stream) }
  }

  private mutating func prepared() -> UnsafeMutablePointer<z_stream> {
    if let stream = unsafe stream { return unsafe stream }
    let fresh = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
    unsafe fresh.initialize(to: z_stream())
    let result = unsafe czlib_deflate_init(fresh, level, -windowBits, memoryLevel)
    precondition(result == Z_OK, "zlib could not allocate a deflater")
    unsafe stream = unsafe fresh
    return unsafe fresh
  }
}
