import ByteStreams
import CZlib

/// Why bytes could not be decompressed.
package enum InflateError: Error, Hashable, Sendable {
  /// They are not DEFLATE.
  case malformed
  /// They would become more than the limit.
  case tooLarge
}

/// Decompresses a raw DEFLATE stream (RFC 1951) that comes in pieces.
///
/// Memory: 2^window bytes and some 7 KiB, allocated with the first byte.
@safe
package struct Inflater: ~Copyable {
  /// How the stream is wrapped.
  package enum Format: Sendable {
    case raw(windowBits: Int)
    /// gzip (RFC 1952) or zlib (RFC 1950), told apart by the first bytes.
    case gzipOrZlib
  }

  private let format: Format
  private var stream: UnsafeMutablePointer<z_stream>?
  /// Whether the last block of the stream has been read.
  package private(set) var hasEnded = false

  package init(_ format: Format) {
    self.format = format
    unsafe stream = nil
  }

  deinit {
    if let stream = unsafe stream {
      unsafe inflateEnd(stream)
      unsafe stream.deallocate()
    }
  }

  /// Appends what `input` decompresses to; `output` may hold at most `limit` bytes afterwards.
  ///
  /// A raw stream goes on after a final block, with its history: RFC 7692 §7.2.3.5 allows such blocks in a message.
  package mutating func inflate(
    _ input: Span<UInt8>, into output: inout ByteQueue, limit: Int
  ) throws(InflateError) {
    let stream = unsafe prepared()
    var failure: InflateError?
    unsafe input.withUnsafeBytes { bytes in
      unsafe stream.pointee.next_in = unsafe UnsafeMutablePointer(
        mutating: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
      unsafe stream.pointee.avail_in = UInt32(clamping: bytes.count)
      while failure == nil {
        var result = Z_OK
        _ = unsafe output.withWritableBytes(minimum: max(256, min(bytes.count * 2, 64 * 1024))) { room in
          unsafe stream.pointee.next_out = unsafe room.baseAddress?.assumingMemoryBound(to: UInt8.self)
          unsafe stream.pointee.avail_out = UInt32(clamping: room.count)
          let offered = unsafe Int(stream.pointee.avail_out)
          result = unsafe CZlib.inflate(stream, Z_SYNC_FLUSH)
          return unsafe offered - Int(stream.pointee.avail_out)
        }
        if output.count > limit {
          failure = .tooLarge
        } else if result == Z_STREAM_END {
          if case .raw = format {
            unsafe restart(stream)
          } else {
            hasEnded = true
            if unsafe stream.pointee.avail_in > 0 { failure = .malformed }
            return
          }
          if unsafe stream.pointee.avail_in == 0 { return }
        } else if result != Z_OK, result != Z_BUF_ERROR {
          failure = .malformed
        } else if unsafe stream.pointee.avail_out > 0 {
          return
        }
      }
    }
    if let failure { throw failure }
  }

  /// Forgets the history.
  package mutating func reset() {
    if let stream = unsafe stream { unsafe inflateReset(stream) }
    hasEnded = false
  }

  private func restart(_ stream: UnsafeMutablePointer<z_stream>) {
    var history = [UInt8](repeating: 0, count: 32 * 1024)
    var length: UInt32 = 0
    unsafe inflateGetDictionary(stream, &history, &length)
    unsafe inflateReset(stream)
    unsafe inflateSetDictionary(stream, history, length)
  }

  private mutating func prepared() -> UnsafeMutablePointer<z_stream> {
    if let stream = unsafe stream { return unsafe stream }
    let fresh = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
    unsafe fresh.initialize(to: z_stream())
    let windowBits: Int32
    switch format {
    case .raw(let bits): windowBits = -Int32(max(bits, 8))
    case .gzipOrZlib: windowBits = 15 + 32
    }
    let result = unsafe czlib_inflate_init(fresh, windowBits)
    precondition(result == Z_OK, "zlib could not allocate an inflater")
    unsafe stream = unsafe fresh
    return unsafe fresh
  }
}
