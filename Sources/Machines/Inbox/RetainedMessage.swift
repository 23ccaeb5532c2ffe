import ByteStreams
import JSONCodec

/// One retained push. It is rendered once, when it arrives.
package struct RetainedMessage: Sendable {
  package let sequence: UInt64
  /// When it arrived, on the monotonic clock: the wall clock, which `rendered` shows, may jump.
  package let arrival: MonotonicTime
  package let kind: MessageKind
  /// The JSON object in a response, from `{` to `}`.
  package let rendered: SharedBytes

  /// Bytes that this message counts towards the retention limit.
  package var cost: Int { rendered.count + Self.overhead }
  /// Memory that a message takes besides its bytes: its entry in the log and its allocation.
  package static let overhead = 96
}

/// Renders a push as the JSON object that polls return.
package struct MessageRenderer: ~Copyable {
  private var scratch = ByteQueue()
  private var clock = TimestampWriter()

  package init() {}

  /// `{"id","time","type","topic","data"}` for text, with `data_base64` in place of `data` for binary. Text that is itself valid
  /// JSON (without unpaired surrogates) is inserted as `data` unchanged, byte for byte. Any other text becomes a JSON string.
  ///
  /// The `payload` of a text must be UTF-8, which the WebSocket layer guarantees (RFC 6455 §8.1). `time` is the time shown, in
  /// milliseconds since the UNIX epoch. `arrival` is the time from which retention counts.
  package mutating func render(
    _ payload: Span<UInt8>, kind: MessageKind, id: Cursor, time: Int64, arrival: MonotonicTime
  ) -> RetainedMessage {
    scratch.removeAll()
    scratch.reserve(payload.count &+ 128)
    scratch.append("{\"id\":\"" as StaticString)
    id.write(into: &scratch)
    scratch.append("\",\"time\":\"" as StaticString)
    clock.write(milliseconds: time, into: &scratch)
    switch kind {
    case .text:
      scratch.append("\",\"type\":\"text\",\"topic\":null,\"data\":" as StaticString)
      if isEmbeddable(payload) { scratch.append(payload) } else { scratch.append(jsonString: payload) }
      scratch.append("}" as StaticString)
    case .binary:
      scratch.append("\",\"type\":\"binary\",\"topic\":null,\"data_base64\":\"" as StaticString)
      Base64.encode(payload, into: &scratch)
      scratch.append("\"}" as StaticString)
    }
    let rendered = SharedBytes(copying: scratch.bytes)
    if scratch.allocatedBytes > Self.scratchKept { scratch.releaseStorage() }
    return RetainedMessage(sequence: id.sequence, arrival: arrival, kind: kind, rendered: rendered)
  }

  /// A larger buffer was needed by an exceptional message only, and is released.
  private static let scratchKept = 64 * 1024

  private func isEmbeddable(_ payload: Span<UInt8>) -> Bool {
    do throws(JSONError) {
      return try !JSONValidator.validate(payload).hasUnpairedSurrogates
    } catch {
      return false
    }
  }
}
