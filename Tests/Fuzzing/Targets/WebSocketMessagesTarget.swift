import ByteStreams
import WebSocketCodec

/// Two ends of a connection: one end reads the messages that the other end sends, with every compression setting and
/// fragmentation.
///
/// Input: a byte for the pieces, two bytes for role and compression, then the messages: a byte each for kind, fragment
/// size and length, and the payload.
enum WebSocketMessagesTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let options = reader.byte()
    let compression = reader.byte()
    let role: WebSocketRole = options & 1 == 0 ? .client : .server
    let isCompressed = options & 2 != 0
    var sender = WebSocketConnection(
      role: role, compression: isCompressed ? settings(compression, isSender: true) : nil)
    var receiver = WebSocketConnection(
      role: role == .client ? .server : .client,
      compression: isCompressed ? settings(compression, isSender: false) : nil)

    var generator = Generator(state: UInt64(compression) + 1)
    var wire = ByteQueue()
    var sent = Transcript<WebSocketProtocolError>()
    var rest = [UInt8](copying: reader.rest)[...]
    while let kind = rest.popFirst() {
      let fragmentBytes = Int(rest.popFirst() ?? 0) + 1
      let payload = Array(rest.prefix(Int(rest.popFirst() ?? 0)))
      rest = rest.dropFirst(payload.count)
      send(kind, payload, fragmentBytes, by: &sender, &generator, &wire, &sent)
    }

    var received = Transcript<WebSocketProtocolError>()
    let bytes = wire.bytes
    for piece in cuts.pieces(of: bytes.count) {
      receiver.receive(bytes.extracting(piece))
      pull(&receiver, into: &received)
    }
    try sent.requireAgreement(with: received, "the other end reads")
  }

  private static func send(
    _ kind: UInt8, _ payload: [UInt8], _ fragmentBytes: Int, by sender: inout WebSocketConnection,
    _ generator: inout Generator, _ wire: inout ByteQueue, _ sent: inout Transcript<WebSocketProtocolError>
  ) {
    guard sender.canSend else { return }
    // A longer message with the same number of fragments, to fill the history of small windows (512 bytes and up).
    let repetitions = kind & 8 == 0 ? 1 : 8
    let message = Array(repeatElement(payload, count: repetitions).joined())
    let fragmentBytes = fragmentBytes * repetitions
    let short = Array(payload.prefix(125))
    switch kind & 7 {
    case 0:
      sender.sendPing(short.span, using: &generator, into: &wire)
      sent.note("i", short)
    case 1:
      sender.sendPong(short.span, using: &generator, into: &wire)
      sent.note("o", short)
    case 2 where kind & 0xF0 == 0xF0:
      sender.sendClose(code: 4000, reason: "", using: &generator, into: &wire)
      sent.noteClose(4000, [])
    case 2, 3, 4:
      sender.sendMessage(.binary, message.span, fragmentBytes: fragmentBytes, using: &generator, into: &wire)
      sent.note("b", message)
    default:
      let text = Array(String(decoding: message, as: UTF8.self).utf8)
      sender.sendMessage(.text, text.span, fragmentBytes: fragmentBytes, using: &generator, into: &wire)
      sent.note("t", text)
    }
  }

  private static func pull(
    _ connection: inout WebSocketConnection, into transcript: inout Transcript<WebSocketProtocolError>
  ) {
    do throws(WebSocketProtocolError) {
      while let event = try connection.nextEvent() { transcript.note(event, connection.payload) }
    } catch {
      transcript.failure = error
    }
  }

  /// The agreed settings, from the view of each end.
  private static func settings(_ choice: UInt8, isSender: Bool) -> MessageCompression.Settings {
    var settings = MessageCompression.Settings()
    let window = 8 + Int(choice & 7)
    let resets = choice & 8 != 0
    if isSender {
      settings.outboundWindowBits = window
      settings.outboundResets = resets
      settings.level = 1 + Int(choice >> 4 & 7)
      settings.memoryLevel = 1 + Int(choice >> 4 & 7)
      settings.threshold = choice & 0x80 == 0 ? 0 : 16
    } else {
      settings.inboundWindowBits = window
      settings.inboundResets = resets
    }
    return settings
  }

  /// Generates masking keys with an LCG. They may be predictable here.
  private struct Generator: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return state ^ state >> 32
    }
  }
}
