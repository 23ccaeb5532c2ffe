import ByteStreams
import JSONCodec

/// An event or an acknowledgement as clients and the configuration write it:
/// `{"event":"chat","args":[…],"namespace":"/","attachments":["AQID"]}` or `{"ack":"…","args":[…]}`.
package enum SocketIOEnvelope: Equatable, Sendable {
  /// The parts of an event.
  case event(SocketIOParts)
  /// The arguments and attachments of the acknowledgement with this token.
  case acknowledgement(token: [UInt8], SocketIOParts)

  private static var members: [String] { ["event", "args", "namespace", "attachments", "ack"] }
  /// Size of an event's name, in bytes.
  private static var nameLimit: Int { 1_024 }

  /// - Parameter attachmentLimit: maximum number of attachments.
  package init(_ text: Span<UInt8>, attachmentLimit: Int) throws(SocketIOEnvelopeError) {
    do throws(JSONError) {
      _ = try JSONValidator.validate(text)
    } catch {
      throw SocketIOEnvelopeError("the envelope is not valid JSON: \(error)")
    }
    guard let object = JSONObject(text) else {
      throw SocketIOEnvelopeError(#"an envelope is an object such as {"event":"chat","args":["hi"]}"#)
    }
    var values: [String: Range<Int>] = [:]
    for member in object.members {
      let token = text.extracting(member.name)
      guard let name = Self.members.first(where: { JSONString.equals(token, Array($0.utf8)) }) else {
        throw SocketIOEnvelopeError(
          "the envelope has a member \(token.excerpt()): use event, args, namespace, attachments and ack")
      }
      guard values.updateValue(member.value, forKey: name) == nil else {
        throw SocketIOEnvelopeError("the envelope has '\(name)' twice")
      }
    }
    var parts = SocketIOParts()
    if let range = values["args"] {
      guard let elements = ArrayElements(text, range) else {
        throw SocketIOEnvelopeError("'args' is the array of the arguments, such as [\"hi\",{\"n\":1}]")
      }
      parts.arguments = [UInt8](copying: text.extracting(elements.all))
    }
    if let range = values["attachments"] {
      parts.attachments = try Self.attachments(text, range, limit: attachmentLimit)
    }
    try parts.checkPlaceholders()
    switch (values["event"], values["ack"]) {
    case (let range?, nil):
      guard let name = JSONString.content(of: text.extracting(range)) else {
        throw SocketIOEnvelopeError("'event' is the name of the event, a string")
      }
      parts.name = name
      try Self.check(name: name)
      if let range = values["namespace"] {
        guard let namespace = JSONString.content(of: text.extracting(range)) else {
          throw SocketIOEnvelopeError("'namespace' is a string such as \"/admin\"")
        }
        parts.namespace = namespace
      }
      self = .event(parts)
    case (nil, let range?):
      guard let token = JSONString.content(of: text.extracting(range)), !token.isEmpty else {
        throw SocketIOEnvelopeError("'ack' is the value of 'ack' in the push")
      }
      guard values["namespace"] == nil else {
        throw SocketIOEnvelopeError("'namespace' belongs to an event: the token of 'ack' has one")
      }
      parts.kind = .acknowledgement
      self = .acknowledgement(token: token, parts)
    case (nil, nil): throw SocketIOEnvelopeError("the envelope has no 'event', the name of the event")
    case (.some, .some): throw SocketIOEnvelopeError("the envelope has both 'event' and 'ack': send two messages")
    }
  }

  /// Throws if no event may have this name.
  package static func check(name: [UInt8]) throws(SocketIOEnvelopeError) {
    guard !name.isEmpty, name.count <= nameLimit else {
      throw SocketIOEnvelopeError("the name of an event has 1 to \(nameLimit) bytes")
    }
    guard !SocketIOPacket.isReservedEventName(name.span) else {
      throw SocketIOEnvelopeError(
        "the event name '\(String(decoding: name, as: UTF8.self))' is reserved by Socket.IO: servers close the connection for it, so use another"
      )
    }
  }

  private static func attachments(
    _ text: Span<UInt8>, _ range: Range<Int>, limit: Int
  ) throws(SocketIOEnvelopeError) -> [[UInt8]] {
    guard let elements = JSONArray.elements(of: text.extracting(range), maximum: limit) else {
      throw SocketIOEnvelopeError(
        "'attachments' is an array of at most \(limit) strings in base64 ('upstream.socketio.attachments')")
    }
    var result: [[UInt8]] = []
    for element in elements {
      let token = text.extracting(range).extracting(element)
      guard let encoded = JSONString.content(of: token) else {
        throw SocketIOEnvelopeError("an element of 'attachments' is no string: use base64")
      }
      do throws(SocketIOViolation) {
        result.append(try EngineIOPacket.decoded(base64: encoded.span))
      } catch {
        throw SocketIOEnvelopeError("an element of 'attachments' is not base64 with padding (RFC 4648, section 4)")
      }
    }
    return result
  }
}

extension SocketIOParts {
  /// Throws if an attachment has no place among the arguments, or a placeholder no attachment.
  func checkPlaceholders() throws(SocketIOEnvelopeError) {
    guard !attachments.isEmpty else { return }
    var array: [UInt8] = [UInt8(ascii: "[")]
    array += arguments
    array.append(UInt8(ascii: "]"))
    guard let used = Placeholders.used(array.span, 0..<array.count, attachments: attachments.count) else {
      throw SocketIOEnvelopeError(
        #"a placeholder in 'args' has no number of an attachment: use {"_placeholder":true,"num":0} for the first"#)
    }
    if let missing = used.firstIndex(of: false) {
      throw SocketIOEnvelopeError(
        #"'args' has no place for an attachment: put {"_placeholder":true,"num":\#(missing)} where it belongs"#)
    }
  }
}

/// What is wrong with an envelope, and what is accepted.
package struct SocketIOEnvelopeError: Error, Hashable, Sendable, CustomStringConvertible {
  package let description: String
  package init(_ description: String) { self.description = description }
}
