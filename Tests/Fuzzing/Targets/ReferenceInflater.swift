import CZlib

/// Runs zlib on the complete input in one call, and uses documented calls only.
final class ReferenceInflater {
  enum Outcome: Equatable { case good, malformed }

  private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
  private let isRaw: Bool
  private(set) var output: [UInt8] = []
  /// Whether a gzip or zlib stream is complete.
  private(set) var hasEnded = false

  /// Raw DEFLATE data without an end and with a window of 2^15 bytes, or gzip and zlib data.
  init(isRaw: Bool) {
    self.isRaw = isRaw
    stream.initialize(to: z_stream())
    let result = czlib_inflate_init(stream, isRaw ? -15 : 15 + 32)
    precondition(result == Z_OK, "zlib could not allocate an inflater")
  }

  deinit {
    inflateEnd(stream)
    stream.deallocate()
  }

  func removeOutput() { output.removeAll(keepingCapacity: true) }

  /// Forgets the history.
  func reset() {
    inflateReset(stream)
    hasEnded = false
  }

  /// Inflates all of `input`, but stops after more than `limit` bytes of output.
  func inflate(_ input: [UInt8], limit: Int) -> Outcome {
    var position = 0
    while position < input.count, output.count <= limit {
      if hasEnded {
        // Only gzip members follow one another (RFC 1952 §2.2).
        guard input[position] == 0x1F else { return .malformed }
        reset()
      }
      var rest = Array(input[position...])
      let (result, taken) = run(&rest, limit)
      position += taken
      switch result {
      case Z_STREAM_END where isRaw: restartWithHistory()
      case Z_STREAM_END: hasEnded = true
      case Z_OK, Z_BUF_ERROR: break
      default: return .malformed
      }
    }
    return .good
  }

  private func run(_ input: inout [UInt8], _ limit: Int) -> (result: Int32, taken: Int) {
    let count = input.count
    return input.withUnsafeMutableBufferPointer { input in
      stream.pointee.next_in = input.baseAddress
      stream.pointee.avail_in = UInt32(count)
      var result = Z_OK
      // An unusual size, so that output rarely fits exactly.
      var room = [UInt8](repeating: 0, count: 1531)
      repeat {
        room.withUnsafeMutableBufferPointer { room in
          stream.pointee.next_out = room.baseAddress
          stream.pointee.avail_out = UInt32(room.count)
          result = CZlib.inflate(stream, Z_NO_FLUSH)
        }
        output += room[..<(room.count - Int(stream.pointee.avail_out))]
      } while result == Z_OK && stream.pointee.avail_out == 0 && output.count <= limit
      return (result, count - Int(stream.pointee.avail_in))
    }
  }

  /// After a final block: starts a new stream with the history of the previous one.
  private func restartWithHistory() {
    var size: UInt32 = 0
    var dictionary = [UInt8](repeating: 0, count: 32 * 1024)
    inflateGetDictionary(stream, &dictionary, &size)
    inflateReset(stream)
    inflateSetDictionary(stream, dictionary, size)
  }
}
