import ByteStreams
import Calls
import Continuity
import Deflate
import Events
import JSONCodec
import Synchronization
import UpstreamProtocol
import UpstreamSession

/// The work on a large message of the upstream that takes time in proportion to its size: decompression, the protocol,
/// the topic, and the form that clients get. Each of these steps may take longer than a turn of the loop should.
///
/// The work is done on another thread, on copies of the states of the protocol. The loop uses the result only if the
/// state of the protocol is still the same (`Conversation.adopt`). The connection reads nothing meanwhile, so all
/// messages are passed on in order.
struct MessagePreparation: Sendable {
  /// nil if the message is passed on unchanged.
  let conversation: Conversation.Snapshot?
  let memory: ProtocolMemory?
  /// The latest settings of the session, which define where a push contains its topic.
  let settings: PreparedSettings
  let handle: SessionHandle

  /// The calling thread does all of the work.
  func run(_ message: LargeMessage) -> PreparedMessage {
    let payload = message.payload
    guard var conversation, var memory else {
      return PreparedMessage(
        reading: nil, push: push(payload, message.kind, time: message.time), event: nil)
    }
    let before = memory
    let (reading, content, kind) = conversation.receive(payload, message.kind, &memory)
    var result = PreparedMessage.Reading(
      reading: reading, payload: content, conversation: conversation, memory: memory.changes(since: before))
    guard case .event(let event, _, _) = reading else { return PreparedMessage(reading: result, push: nil, event: nil) }
    switch event {
    case .push:
      if conversation.capabilities.contains(.acknowledgements) {
        do throws(TemplateError) {
          result.acknowledgement = .success(
            try result.conversation.state.takeAcknowledgement(memory, now: message.time))
        } catch {
          result.acknowledgement = .failure(error)
        }
      }
      return PreparedMessage(reading: result, push: push(content, kind, time: message.time), event: nil)
    case .reply(let call, let range):
      var push = self.push(content, kind, time: message.time)
      push.setReply(call, range, isIgnored: false)
      return PreparedMessage(reading: result, push: push, event: nil)
    case .event(let push):
      return PreparedMessage(reading: result, push: nil, event: self.event(push, time: message.time))
    case .news:
      // The meaning of the message follows. It is read from a copy, so that the loop can read it again from the state
      // that it adopts.
      var next = result.conversation.state
      guard case .event(let push)? = next.next(&memory) else { break }
      return PreparedMessage(reading: result, push: nil, event: self.event(push, time: message.time))
    default: break
    }
    return PreparedMessage(reading: result, push: nil, event: nil)
  }

  private func push(_ payload: ByteString, _ kind: MessageKind, time: Int64) -> PreparedPush {
    let conventions = settings.value.conventions
    let topic = kind.isText && !conventions.topics.isEmpty ? conventions.topics.topic(of: payload.bytes) : []
    var push = PreparedPush(
      payload: payload, kind: kind, topic: topic, digest: OverlapFilter.digest(of: payload.bytes, kind: kind),
      pass: handle.sink.rendered(payload.bytes, kind: kind, topic: topic.span, now: time))
    if kind.isText, handle.mayHaveReplies.load(ordering: .relaxed), let correlation = conventions.correlation {
      if let match = handle.match(payload.bytes, correlation) {
        push.setReply(match.call, match.range, isIgnored: match.isIgnored)
      }
    }
    return push
  }

  private func event(_ push: ProtocolPush, time: Int64) -> PreparedPush {
    let event = EventRecord(push.record.bytes)
    return PreparedPush(
      payload: push.record, kind: .text, topic: [],
      digest: OverlapFilter.digest(of: event.identity, kind: .text), pass: handle.sink.rendered(event, now: time))
  }
}

/// The result of a `MessagePreparation`.
struct PreparedMessage: Sendable {
  /// The result of the protocol.
  struct Reading: Sendable {
    let reading: Conversation.Reading
    /// The payload, decompressed if it was compressed.
    let payload: ByteString
    /// The state after the message.
    var conversation: Conversation.Snapshot
    let memory: ProtocolMemory.Changes
    /// The message that acknowledges the push; nil if the protocol acknowledges no pushes.
    var acknowledgement: Result<PushAcknowledgement?, TemplateError>?
  }

  /// nil if the message is passed on unchanged.
  let reading: Reading?
  /// The message as a push; nil if it is none.
  let push: PreparedPush?
  /// The first event in the message; nil if there is none.
  let event: PreparedPush?
}

/// A large push or event, ready to be passed on.
struct PreparedPush: Sendable {
  /// The payload of a push, or the record of an event.
  let payload: ByteString
  let kind: MessageKind
  let topic: [UInt8]
  /// The digest for the overlap of two connections.
  let digest: UInt64
  /// Passes on the push; nil if the sink renders the push when it is passed on.
  let pass: RenderedPush?
  /// The call to which the push may be the reply, as in `Correlation.Match`. `traits`: nil if the push is not JSON.
  private(set) var reply: (call: CallID, range: Range<Int>, isIgnored: Bool, traits: JSONTraits?)?

  fileprivate init(
    payload: ByteString, kind: MessageKind, topic: [UInt8], digest: UInt64, pass: RenderedPush?
  ) {
    self.payload = payload
    self.kind = kind
    self.topic = topic
    self.digest = digest
    self.pass = pass
  }

  fileprivate mutating func setReply(_ call: CallID, _ range: Range<Int>, isIgnored: Bool) {
    reply = (call, range, isIgnored, try? JSONValidator.validate(payload.bytes))
  }
}
