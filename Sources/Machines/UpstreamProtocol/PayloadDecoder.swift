import ByteStreams
import Deflate

/// How an upstream compresses the payloads of its binary messages, apart from permessage-deflate.
package enum PayloadCodec: String, CaseIterable, Sendable {
  case raw
  /// gzip (RFC 1952).
  case gzip
  /// zlib (RFC 1950) or raw DEFLATE (RFC 1951).
  case deflate
  /// gzip or zlib, as the first bytes indicate; anything else is passed on unchanged.
  case auto
}

/// Decompresses the payloads of binary messages, each independently. Text messages are never compressed.
package struct PayloadDecoder: ~Copyable {
  package enum Outcome: Equatable, Sendable {
    /// The payload is not compressed.
    case notCompressed
    /// The decompressed payload is in `decompressed`.
    case decompressed
    /// The payload does not have the format of the codec, or is truncated. It is passed on unchanged, so that no data
    /// is lost silently.
    case malformed
    /// The decompressed payload would exceed the limit.
    case tooLarge
  }

  private let codec: PayloadCodec
  private let limit: Int
  private var wrapped = Inflater(.gzipOrZlib)
  private var bare = Inflater(.raw(windowBits: 15))
  private var output = ByteQueue()

  /// Storage kept between messages, in bytes: a single large message must not keep its memory allocated.
  private static var storageKept: Int { 256 << 10 }

  /// `limit`: maximum decompressed size of a message, in bytes.
  package init(_ codec: PayloadCodec, limit: Int) {
    self.codec = codec
    self.limit = limit
  }

  /// The last decompressed payload.
  package var decompressed: Span<UInt8> {
    @_lifetime(borrow self)
    get { output.bytes }
  }

  /// - Parameter ceiling: another limit, in bytes. The lower limit applies.
  package mutating func decode(_ payload: Span<UInt8>, ceiling: Int = .max) -> Outcome {
    let limit = min(limit, ceiling)
    return switch codec {
    case .raw: .notCompressed
    case .gzip: Self.isGzip(payload) ? inflateWrapped(payload, limit) : .malformed
    case .deflate: Self.isZlib(payload) ? inflateWrapped(payload, limit) : inflateBare(payload, limit)
    case .auto: Self.isGzip(payload) || Self.isZlib(payload) ? inflateWrapped(payload, limit) : .notCompressed
    }
  }

  private mutating func inflateWrapped(_ payload: Span<UInt8>, _ limit: Int) -> Outcome {
    wrapped.reset()
    prepare()
    do throws(InflateError) {
      try wrapped.inflate(payload, into: &output, limit: limit)
    } catch {
      return failed(error)
    }
    return wrapped.hasEnded ? .decompressed : .malformed
  }

  private mutating func inflateBare(_ payload: Span<UInt8>, _ limit: Int) -> Outcome {
    guard !payload.isEmpty else { return .malformed }
    bare.reset()
    prepare()
    do throws(InflateError) {
      try bare.inflate(payload, into: &output, limit: limit)
    } catch {
      return failed(error)
    }
    return .decompressed
  }

  private mutating func prepare() {
    if output.allocatedBytes > Self.storageKept { output.releaseStorage() } else { output.removeAll() }
  }

  private mutating func failed(_ error: InflateError) -> Outcome {
    output.releaseStorage()
    return error == .tooLarge ? .tooLarge : .malformed
  }

  private static func isGzip(_ payload: Span<UInt8>) -> Bool {
    payload.count > 2 && payload[0] == 0x1F && payload[1] == 0x8B
  }

  /// RFC 1950 §2.2: method 8, window at most 32 KiB, and a header that is a multiple of 31.
  private static func isZlib(_ payload: Span<UInt8>) -> Bool {
    payload.count > 2 && payload[0] & 0x0F == 8 && payload[0] >> 4 <= 7
      && (Int(payload[0]) << 8 | Int(payload[1])) % 31 == 0
  }
}
