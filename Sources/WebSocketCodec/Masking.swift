import ByteStreams

/// The masking of RFC 6455 §5.3: every byte XOR one of the four bytes of the key, in turn.
package struct MaskingKey: Hashable, Sendable {
  /// The key's bytes in the order of the wire, lowest first.
  package let bytes: UInt32

  package init(bytes: UInt32) { self.bytes = bytes }

  package init(using generator: inout some RandomNumberGenerator) { bytes = generator.next() }

  /// The key for a run that begins `offset` bytes into the payload.
  func advanced(by offset: Int) -> MaskingKey {
    let shift = UInt32(offset & 3) * 8
    return MaskingKey(bytes: shift == 0 ? bytes : bytes >> shift | bytes << (32 - shift))
  }

  /// Appends `payload` masked (or unmasked: it is the same). Copies and masks in one pass, eight bytes at a time.
  package func append(_ payload: Span<UInt8>, to output: inout ByteQueue) {
    guard !payload.isEmpty else { return }
    let word = UInt64(bytes) | UInt64(bytes) << 32
    _ = unsafe output.withWritableBytes(minimum: payload.count) { room in
      unsafe payload.withUnsafeBytes { source in
        let count = source.count
        var index = 0
        while index &+ 32 <= count {
          for step in stride(from: index, to: index &+ 32, by: 8) {
            let piece = unsafe source.loadUnaligned(fromByteOffset: step, as: UInt64.self) ^ word
            unsafe room.storeBytes(of: piece, toByteOffset: step, as: UInt64.self)
          }
          index &+= 32
        }
        while index &+ 8 <= count {
          let piece = unsafe source.loadUnaligned(fromByteOffset: index, as: UInt64.self) ^ word
          unsafe room.storeBytes(of: piece, toByteOffset: index, as: UInt64.self)
          index &+= 8
        }
        while index < count {
          unsafe room[index] = unsafe source[index] ^ UInt8(truncatingIfNeeded: word >> (UInt64(index & 7) &* 8))
          index &+= 1
        }
        return count
      }
    }
  }
}
