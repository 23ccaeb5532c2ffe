import ByteStreams
import JSONCodec

/// One push, as it is kept: rendered when it arrived, never again.
package struct RetainedMessage: Sendable {
  package let sequence: UInt64
  /// When it arrived, on the clock that nobody sets: the time of day, which `rendered` shows, may jump.
  package let arrival: MonotonicTime
  package let kind: MessageKind
  /// The JSON object that an answer contains, from `{` to `}`.
  package let rendered: SharedBytes

  /// Bytes this message counts for against the retention limit.
  package var cost: Int { rendered.count + Self.overhead }
  /// What a message takes beside its bytes: its place in the log and the allocation behind it.
  package static let overhead = 96
}

/// Renders a push as the JSON object that polls return.
package struct MessageRenderer: ~Copyable {
  private var scratch = ByteQueue()
  private var clock = TimestampWriter()

  package init() {}

  /// `{"id","time","type","topic","data"}` for text, with `data_base64` in place of `data` for binary. A text that is JSON
  /// itself stands in `data` as it came, byte for byte; any other as a string.
  ///
  /// `payload` of a text must be UTF-8; the WebSocket layer has seen to that (RFC 6455 §8.1). `time` is what is shown, in
  /// milliseconds of UNIX time; `arrival` is what retention counts from.
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

  /// A buffer larger than this was for an exceptional message and is given back.
  private static let scratchKept = 64 * 1024

  private func isEmbeddable(_ payload: Span<UInt8>) -> Bool {
    do throws(JSONError) {
      return try !JSONValidator.validate(payload).hasUnpairedSurrogates
    } catch {
      return false
    }
  }
}
