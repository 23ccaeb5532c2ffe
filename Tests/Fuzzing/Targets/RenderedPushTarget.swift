import ByteStreams
import Inbox
import JSONCodec

/// A push is rendered as a JSON object that contains the payload and that every parser accepts.
///
/// Input: a byte for text or binary, then the payload.
enum RenderedPushTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let isText = reader.byte() & 1 == 0
    let payload = [UInt8](copying: reader.rest)
    guard !isText || ReferenceUTF8.isValid(payload) else { return }

    var renderer = MessageRenderer()
    let id = Cursor(epoch: Epoch(0x0123_4567_89AB), sequence: UInt64(payload.count))
    let message = renderer.render(
      reader.rest, kind: isText ? .text : .binary, topic: Span(), id: id, time: 1_700_000_000_123, arrival: .zero)
    let rendered = [UInt8](copying: message.rendered.bytes)
    var object = ReferenceJSON(rendered, maximumDepth: JSONValidator.maximumDepth + 1)
    try require(object.document(), "not JSON: \(String(decoding: rendered, as: UTF8.self))")
    try require(!object.hasUnpairedSurrogates, "an unpaired surrogate is passed on")
    var restored = ByteQueue()
    message.writePayload(into: &restored)
    try require(restored.copyBytes() == payload, "the payload is not restored from the object")
    guard isText else { return }
    var itself = ReferenceJSON(payload, maximumDepth: JSONValidator.maximumDepth)
    if itself.document(), !itself.hasUnpairedSurrogates {
      try require(
        rendered.dropLast().suffix(payload.count) == payload[...], "a JSON payload is changed")
    } else {
      try require(object.lastString == payload, "the payload in the object differs")
    }
  }
}
