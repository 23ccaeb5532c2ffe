import ByteStreams
import Conventions
import Metrics
import Reactor
import UpstreamSession
import WebSocketCodec

/// Messages that the session itself says and hears: its opening, its heartbeats.
extension UpstreamLink {
  /// Bytes of a file that a template may hold: a secret is far smaller.
  static var fileLimit: Int { 64 << 10 }

  /// Reads the files of all templates, off the loop: reading blocks. Anew for each dial, since a secret may have been replaced.
  func readFiles() async throws(OpeningEnd) {
    let paths = settings.conventions.files
    guard !paths.isEmpty else { return }
    let limit = Self.fileLimit
    let contents = await Task.detached { () -> [String: [UInt8]] in
      var contents: [String: [UInt8]] = [:]
      for path in paths { contents[path] = SystemFile.bytes(of: path, atMost: limit) }
      return contents
    }.value
    guard !isDiscarded else { throw .discarded }
    for path in paths.sorted() {
      guard var content = contents[path] else {
        throw .failed(
          OpeningReport(
            .resolving, .preparation, "file '\(path)', which a message of the session holds, cannot be read"))
      }
      if content.last == UInt8(ascii: "\n") { content.removeLast() }
      values.files[path] = content
    }
  }

  /// Hands one message of the upstream to whom it is meant for.
  func receive(isText: Bool, now: Int64) {
    guard !isText else {
      act(on: examine(socket.payload, isText: true, now: now))
      return
    }
    switch decoder.decode(socket.payload) {
    case .asItIs:
      act(on: examine(socket.payload, isText: false, now: now))
    case .malformed:
      driver.metrics.malformedPayloads.add()
      act(on: examine(socket.payload, isText: false, now: now))
    case .unpacked:
      let isText = UTF8StreamValidator.isValid(decoder.unpacked)
      act(on: examine(decoder.unpacked, isText: isText, now: now))
    case .tooLarge:
      driver.lost(
        self, .violation(code: 1009), "a message unpacks to more than \(settings.limits.messageBytes) bytes")
    }
  }

  /// Gives a push to the clients and keeps of another message what its answer needs. Nothing is sent here: the payload lies in
  /// the socket's own memory.
  private func examine(_ payload: Span<UInt8>, isText: Bool, now: Int64) -> MessageMeaning {
    let conventions = settings.conventions
    let meaning = conventions.meaning(of: payload, awaited: awaited)
    switch meaning {
    case .push:
      if let cursor = conventions.cursor(in: payload) { driver.cursor = cursor }
      driver.pass(payload, isText: isText, from: self, now: now)
    case .openingAnswer: values.answered = [UInt8](copying: payload)
    case .heartbeat: if conventions.server.reply != nil { values.answered = [UInt8](copying: payload) }
    case .refusal, .heartbeatAnswer: break
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
        "the upstream's answer to 'upstream.on_open[\(awaited ?? 0)]' says that it refuses the credentials")
    case .heartbeat:
      driver.metrics.receivedHeartbeats.add()
      if let reply = settings.conventions.server.reply { driver.answer(self, with: reply) }
    case .heartbeatAnswer: driver.heartbeatAnswered(self)
    }
  }
}
