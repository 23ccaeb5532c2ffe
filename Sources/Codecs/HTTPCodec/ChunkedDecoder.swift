import ByteStreams

/// Removes the framing of a chunked body (RFC 9112 §7.1). Framing is read byte by byte. Data is skipped without being
/// read.
///
/// The decoder is a state machine, because framing may arrive in any pieces and an invalid byte must be rejected when
/// it arrives. A server that waited for the end of an invalid line could be made to wait forever.
package struct ChunkedDecoder {
  enum State: Equatable {
    /// Before the first digit of the chunk size.
    case size
    /// After at least one digit.
    case sizeDigits
    /// Bad whitespace (BWS) before `;`, which a recipient must accept (RFC 9112 §7.1.1). Only `;` may follow.
    case spaceBeforeSemicolon
    /// After `;`, before the extension name.
    case extensionNameStart
    case extensionName
    /// Whitespace after an extension name. Only `=` or `;` may follow.
    case spaceAfterName
    /// After `=`, before the extension value.
    case extensionValueStart
    case extensionToken
    case extensionQuoted
    case extensionQuotedPair
    /// After a quoted value. `;` or the end of the line must follow.
    case afterQuoted
    /// After the CR of the chunk-size line.
    case sizeLineFeed
    case data
    case dataReturn
    case dataLineFeed
    /// After the last chunk. The trailer section follows.
    case trailers
  }

  /// The layout of the front of the input.
  package struct Step {
    /// Bytes of framing at the front, to be dropped.
    package var framing: Int
    /// Bytes of data after the framing. Zero if more input is needed or the trailer section begins.
    package var data: Int
  }

  private(set) var state = State.size
  private var digits: UInt8 = 0
  /// Bytes of extensions in the current chunk-size line.
  private var extensionBytes: UInt32 = 0
  /// Bytes of framing since the previous chunk's size line.
  private var lineBytes: UInt32 = 0
  /// While the chunk size is read, its value so far. After that, the number of bytes of data that are left in the
  /// chunk.
  private var remaining: UInt64 = 0
  /// The bytes of framing above the allowance per chunk. See `HTTPLimits.chunkOverheadBytes`.
  private var overhead = 0
  /// The sum of the chunk sizes read so far.
  private(set) var total = 0

  package init() {}

  /// Whether the last chunk has been read. The trailer section follows.
  package var isComplete: Bool { state == .trailers }

  /// Reads the front of `input`, which is framing that must be dropped, followed by data. The caller must consume both
  /// before the next call.
  package mutating func step(_ input: Span<UInt8>, _ limits: HTTPLimits) throws(HTTPProtocolError) -> Step {
    var index = 0
    while index < input.count {
      if state == .trailers { break }
      if state == .data {
        let available = input.count &- index
        let data = remaining < UInt64(available) ? Int(remaining) : available
        remaining &-= UInt64(data)
        if remaining == 0 { state = .dataReturn }
        return Step(framing: index, data: data)
      }
      try read(input[index], limits)
      index &+= 1
    }
    return Step(framing: index, data: 0)
  }

  private mutating func read(_ byte: UInt8, _ limits: HTTPLimits) throws(HTTPProtocolError) {
    lineBytes &+= 1
    switch state {
    case .size, .sizeDigits: try readSize(byte, limits)
    case .spaceBeforeSemicolon, .extensionNameStart, .extensionName, .spaceAfterName, .extensionValueStart,
      .extensionToken, .extensionQuoted, .extensionQuotedPair, .afterQuoted:
      extensionBytes &+= 1
      guard extensionBytes <= limits.chunkExtensionBytes else {
        throw .chunkExtensionTooLong(limit: limits.chunkExtensionBytes)
      }
      try readExtension(byte)
    case .sizeLineFeed:
      guard byte == 0x0A else { throw .bareCarriageReturn }
      try beginData(limits)
    case .dataReturn:
      guard byte == 0x0D else { throw byte == 0x0A ? .bareLineFeed : .missingChunkEnd }
      state = .dataLineFeed
    case .dataLineFeed:
      guard byte == 0x0A else { throw .missingChunkEnd }
      state = .size
    case .data, .trailers: preconditionFailure("chunk framing read inside \(state)")
    }
  }

  private mutating func readSize(_ byte: UInt8, _ limits: HTTPLimits) throws(HTTPProtocolError) {
    if let value = ASCII.hexValue(byte) {
      guard Int(digits) < limits.chunkSizeDigits, remaining >> 60 == 0 else { throw .malformedChunkSize }
      digits &+= 1
      remaining = remaining << 4 | UInt64(value)
      state = .sizeDigits
      return
    }
    guard state == .sizeDigits else { throw .malformedChunkSize }
    switch byte {
    case 0x0D: state = .sizeLineFeed
    case 0x0A: throw .bareLineFeed
    case 0x3B: state = .extensionNameStart
    case 0x20, 0x09: state = .spaceBeforeSemicolon
    default: throw .malformedChunkSize
    }
  }

  /// `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )`
  private mutating func readExtension(_ byte: UInt8) throws(HTTPProtocolError) {
    let isSpace = byte == 0x20 || byte == 0x09
    switch state {
    case .spaceBeforeSemicolon:
      if isSpace { return }
      guard byte == 0x3B else { throw .malformedChunkSize }
      state = .extensionNameStart
    case .extensionNameStart:
      if isSpace { return }
      guard ASCII.isToken(byte) else { throw Self.extensionError(byte) }
      state = .extensionName
    case .extensionName, .spaceAfterName:
      if ASCII.isToken(byte), state == .extensionName { return }
      if isSpace {
        state = .spaceAfterName
      } else if byte == 0x3D {
        state = .extensionValueStart
      } else if byte == 0x3B {
        state = .extensionNameStart
      } else if byte == 0x0D, state == .extensionName {
        state = .sizeLineFeed
      } else {
        throw Self.extensionError(byte)
      }
    case .extensionValueStart:
      if isSpace { return }
      if byte == 0x22 {
        state = .extensionQuoted
      } else if ASCII.isToken(byte) {
        state = .extensionToken
      } else {
        throw Self.extensionError(byte)
      }
    case .extensionToken:
      if ASCII.isToken(byte) { return }
      try endExtensionValue(byte, isSpace)
    case .afterQuoted: try endExtensionValue(byte, isSpace)
    case .extensionQuoted:
      if byte == 0x22 {
        state = .afterQuoted
      } else if byte == 0x5C {
        state = .extensionQuotedPair
      } else if byte != 0x09, byte < 0x20 || byte == 0x7F {
        throw Self.extensionError(byte)
      }
    case .extensionQuotedPair:
      if byte != 0x09, byte < 0x20 || byte == 0x7F { throw Self.extensionError(byte) }
      state = .extensionQuoted
    case .size, .sizeDigits, .sizeLineFeed, .data, .dataReturn, .dataLineFeed, .trailers:
      preconditionFailure("chunk extension read inside \(state)")
    }
  }

  private mutating func endExtensionValue(_ byte: UInt8, _ isSpace: Bool) throws(HTTPProtocolError) {
    if isSpace {
      // Whitespace is allowed only before the next `;`.
      state = .spaceBeforeSemicolon
    } else if byte == 0x3B {
      state = .extensionNameStart
    } else if byte == 0x0D {
      state = .sizeLineFeed
    } else {
      throw Self.extensionError(byte)
    }
  }

  private static func extensionError(_ byte: UInt8) -> HTTPProtocolError {
    byte == 0x0A ? .bareLineFeed : .malformedChunkExtension
  }

  /// Called at the end of the chunk-size line.
  private mutating func beginData(_ limits: HTTPLimits) throws(HTTPProtocolError) {
    guard remaining <= UInt64(limits.bodyBytes &- total) else { throw .contentTooLarge(limit: limits.bodyBytes) }
    let size = Int(remaining)
    total &+= size
    // This is the rule of Go's HTTP server. The framing of a chunk may have 16 bytes plus twice the size of its data.
    // Framing above this allowance accumulates in `overhead`. A chunk that does not use its whole allowance reduces
    // `overhead`.
    overhead = max(0, overhead &+ Int(lineBytes) &- 16 &- 2 &* size)
    guard overhead <= limits.chunkOverheadBytes else {
      throw .chunkOverheadTooLarge(limit: limits.chunkOverheadBytes)
    }
    digits = 0
    extensionBytes = 0
    lineBytes = 0
    state = size == 0 ? .trailers : .data
  }
}
