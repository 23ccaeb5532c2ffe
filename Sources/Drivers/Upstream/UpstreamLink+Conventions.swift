import ByteStreams
import UpstreamProtocol
import Metrics
import Reactor
import UpstreamSession
import WebSocketCodec

/// Messages that the session itself says and hears: its opening, its heartbeats.
extension UpstreamLink {
  /// Bytes shown of a message that refuses an opening: enough for a sentence.
  private static var refusalTextLimit: Int { 256 }

  /// Hands one message of the upstream to whom it is meant for.
  func receive(kind: MessageKind, now: Int64) {
    guard kind == .binary else {
      act(on: examine(socket.payload, kind: .text, now: now))
      return
    }
    switch decoder.decode(socket.payload) {
    case .asItIs:
      act(on: examine(socket.payload, kind: .binary, now: now))
    case .malformed:
      driver.metrics.malformedPayloads.add()
      act(on: examine(socket.payload, kind: .binary, now: now))
    case .unpacked:
      let kind: MessageKind = UTF8StreamValidator.isValid(decoder.unpacked) ? .text : .binary
      act(on: examine(decoder.unpacked, kind: kind, now: now))
    case .tooLarge:
      driver.lost(
        self, .violation(code: 1009), "a message unpacks to more than \(settings.limits.messageBytes) bytes")
    }
  }

  /// Gives a push to the clients and keeps of another message what its answer needs. Nothing is sent here: the payload lies in
  /// the socket's own memory.
  private func examine(_ payload: Span<UInt8>, kind: MessageKind, now: Int64) -> MessageMeaning {
    let conventions = settings.conventions
    let meaning = conventions.meaning(of: payload, awaited: awaited)
    switch meaning {
    case .push:
      if let cursor = conventions.cursor(in: payload) { driver.cursor = cursor }
      // What a predecessor says of subscriptions does not hold for its successor.
      if driver.isSending(self) { driver.noteEnd(payload) }
      driver.pass(payload, kind: kind, from: self, now: now)
    case .openingAnswer: values.answered = [UInt8](copying: payload)
    case .heartbeat: if conventions.server.reply != nil { values.answered = [UInt8](copying: payload) }
    case .refusal:
      let text = payload.extracting(first: Self.refusalTextLimit).text()
      refusalText = mask.applied(to: text, isCut: payload.count > Self.refusalTextLimit)
    case .heartbeatAnswer: break
    }
    return meaning
  }

  private func act(on meaning: MessageMeaning) {
    if meaning == .heartbeat || settings.conventions.server.match == nil { driver.heartbeatReceived(self) }
    switch meaning {
    case .push: break
    case .openingAnswer: driver.openingAnswered(self)
    case .refusal:
      driver.failOpening(
        self, .denied,
        "the upstream's response to \(OpeningPhase.name(ofStep: awaited)) says that it refuses the credentials:"
          + " \(refusalText)")
    case .heartbeat:
      driver.metrics.receivedHeartbeats.add()
      if let reply = settings.conventions.server.reply { driver.answer(self, with: reply) }
    case .heartbeatAnswer: driver.heartbeatAnswered(self)
    }
  }
}
