import ByteStreams
import CZlib
import WebSocketCodec

/// permessage-deflate with context takeover and plain zlib, with the same settings and messages.
func measureCompression(_ comparison: Comparison) {
  for bytes in [200, 4096] {
    let messages = SampleMessages.make(bytes == 200 ? 2000 : 200, bytes: bytes)
    let megabytes = Double(messages.reduce(0) { $0 + $1.count }) / 1e6
    measureInflating(comparison, messages, megabytes, bytes)
    measureDeflating(comparison, messages, megabytes, bytes)
  }
}

private func measureInflating(_ comparison: Comparison, _ messages: [[UInt8]], _ megabytes: Double, _ bytes: Int) {
  // The first message does not refer to earlier data, so one inflater can read all of them repeatedly.
  let deflater = BareDeflater(windowBits: 15, level: 6, memoryLevel: 8)
  let payloads = messages.map { deflater.compress($0) }
  let pieces = cut(payloads.flatMap { frame($0) }, into: 64 * 1024)
  let client = Receiver(WebSocketConnection(role: .client, compression: MessageCompression.Settings()))
  let inflater = BareInflater(windowBits: 15)
  comparison.run(
    "inflate_\(bytes)", unit: "MB/s", amount: megabytes,
    ours: { timed { pieces.forEach(client.receive) } },
    reference: { timed { payloads.forEach(inflater.inflateMessage) } })
}

private func measureDeflating(_ comparison: Comparison, _ messages: [[UInt8]], _ megabytes: Double, _ bytes: Int) {
  let settings = MessageCompression.Settings()
  let client = Sender(settings)
  let deflater = BareDeflater(
    windowBits: Int32(settings.outboundWindowBits), level: Int32(settings.level),
    memoryLevel: Int32(settings.memoryLevel))
  comparison.run(
    "deflate_\(bytes)", unit: "MB/s", amount: megabytes,
    ours: { timed { messages.forEach(client.send) } },
    reference: { timed { messages.forEach { deflater.compressInPlace($0) } } })
}

/// An unmasked, final text frame with RSV1.
private func frame(_ payload: [UInt8]) -> [UInt8] {
  precondition(payload.count < 1 << 16)
  let length =
    payload.count < 126 ? [UInt8(payload.count)] : [126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
  return [0xC1] + length + payload
}

/// The sending end of a connection. Its output is discarded.
private final class Sender {
  private var connection: WebSocketConnection
  private var output = ByteQueue()
  private var generator = SplitMix(state: 3)

  init(_ settings: MessageCompression.Settings) {
    connection = WebSocketConnection(role: .client, compression: settings)
  }

  func send(_ message: [UInt8]) {
    connection.sendMessage(.text, message.span, using: &generator, into: &output)
    output.removeAll()
  }
}

private final class BareDeflater {
  private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
  private var room = [UInt8](repeating: 0, count: 64 * 1024)

  init(windowBits: Int32, level: Int32, memoryLevel: Int32) {
    stream.initialize(to: z_stream())
    precondition(czlib_deflate_init(stream, level, -windowBits, memoryLevel) == Z_OK)
  }

  deinit {
    deflateEnd(stream)
    stream.deallocate()
  }

  @discardableResult
  func compressInPlace(_ message: [UInt8]) -> Int {
    message.withUnsafeBufferPointer { bytes in
      room.withUnsafeMutableBufferPointer { room in
        stream.pointee.next_in = UnsafeMutablePointer(mutating: bytes.baseAddress)
        stream.pointee.avail_in = UInt32(bytes.count)
        stream.pointee.next_out = room.baseAddress
        stream.pointee.avail_out = UInt32(room.count)
        precondition(deflate(stream, Z_SYNC_FLUSH) == Z_OK)
        return room.count - Int(stream.pointee.avail_out)
      }
    }
  }

  /// Without the four bytes that RFC 7692 §7.2.1 removes.
  func compress(_ message: [UInt8]) -> [UInt8] { Array(room[..<(compressInPlace(message) - 4)]) }
}

private final class BareInflater {
  private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
  private var room = [UInt8](repeating: 0, count: 64 * 1024)

  init(windowBits: Int32) {
    stream.initialize(to: z_stream())
    precondition(czlib_inflate_init(stream, -windowBits) == Z_OK)
  }

  deinit {
    inflateEnd(stream)
    stream.deallocate()
  }

  func inflateMessage(_ payload: [UInt8]) {
    room.withUnsafeMutableBufferPointer { room in
      stream.pointee.next_out = room.baseAddress
      stream.pointee.avail_out = UInt32(room.count)
    }
    inflatePart(payload)
    inflatePart([0x00, 0x00, 0xFF, 0xFF])
  }

  private func inflatePart(_ bytes: [UInt8]) {
    bytes.withUnsafeBufferPointer { bytes in
      stream.pointee.next_in = UnsafeMutablePointer(mutating: bytes.baseAddress)
      stream.pointee.avail_in = UInt32(bytes.count)
      let result = inflate(stream, Z_SYNC_FLUSH)
      precondition(result == Z_OK || result == Z_BUF_ERROR)
    }
  }
}
