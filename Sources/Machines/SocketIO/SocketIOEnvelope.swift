import ByteStreams
import Events
import JSONCodec

/// Reads an envelope: `{"event":"chat","args":[…],"namespace":"/","attachments":["AQID"]}` or `{"ack":"…","args":[…]}`.
extension EventEnvelope {
  private static var members: [String] { ["event", "args", "namespace", "attachments", "ack"] }
  /// Maximum size of an event's name, in bytes.
  private static var nameLimit: Int { 1_024 }

  /// - Parameter attachmentLimit: maximum number of attachments.
  package init(_ text: Span<UInt8>, attachmentLimit: Int) throws(EventFormatError) {
    do throws(JSONError) {
      _ = try JSONValidator.validate(text)
    } catch {
      throw EventFormatError("the envelope is not valid JSON: \(error)")
    }
    guard let object = JSONObject(text) else {
      throw EventFormatError(#"an envelope is an object such as {"event":"chat","args":["hi"]}"#)
    }
    var values: [String: Range<Int>] = [:]
    for member in object.members {
      let token = text.extracting(member.name)
      guard let name = Self.members.first(where: { JSONString.equals(token, Array($0.utf8)) }) else {
        throw EventFormatError(
          "the envelope has a member \(token.excerpt()): use event, args, namespace, attachments and ack")
      }
      guard values.updateValue(member.value, forKey: name) == nil else {
        throw EventFormatError("the envelope has '\(name)' twice")
      }
    }
    var parts = EventParts()
    if let range = values["args"] {
      guard let elements = ArrayElements(text, range) else {
        throw EventFormatError("'args' is the array of the arguments, such as [\"hi\",{\"n\":1}]")
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
        throw EventFormatError("'event' is the name of the event, a string")
      }
      parts.name = name
      try Self.check(name: name)
      if let range = values["namespace"] {
        guard let namespace = JSONString.content(of: text.extracting(range)) else {
          throw EventFormatError("'namespace' is a string such as \"/admin\"")
        }
        parts.namespace = namespace
      }
      self = .event(parts)
    case (nil, let range?):
      guard let token = JSONString.content(of: text.extracting(range)), !token.isEmpty else {
        throw EventFormatError("'ack' is the value of 'ack' in the push")
      }
      guard values["namespace"] == nil else {
        throw EventFormatError("'namespace' belongs to an event: the token of 'ack' already names the namespace")
      }
      parts.kind = .acknowledgement
      self = .acknowledgement(token: token, parts)
    case (nil, nil): throw EventFormatError("the envelope has no 'event', the name of the event")
    case (.some, .some): throw EventFormatError("the envelope has both 'event' and 'ack': send two messages")
    }
  }

  /// Throws if an event cannot have this name.
  package static func check(name: [UInt8]) throws(EventFormatError) {
    guard !name.isEmpty, name.count <= nameLimit else {
      throw EventFormatError("the name of an event has 1 to \(nameLimit) bytes")
    }
    guard !SocketIOPacket.isReservedEventName(name.span) else {
      throw EventFormatError(
        "the event name '\(String(decoding: name, as: UTF8.self))' is reserved by Socket.IO: servers close the connection for it, so use another name"
      )
    }
  }

  private static func attachments(
    _ text: Span<UInt8>, _ range: Range<Int>, limit: Int
  ) throws(EventFormatError) -> [[UInt8]] {
    guard let elements = JSONArray.elements(of: text.extracting(range), maximum: limit) else {
      throw EventFormatError(
        "'attachments' is an array of at most \(limit) strings in base64 ('upstream.socketio.attachments')")
    }
    var result: [[UInt8]] = []
    for element in elements {
      let token = text.extracting(range).extracting(element)
      guard let encoded = JSONString.content(of: token) else {
        throw EventFormatError("an element of 'attachments' is not a string: use base64")
      }
      do throws(SocketIOViolation) {
        result.append(try EngineIOPacket.decoded(base64: encoded.span))
      } catch {
        throw EventFormatError("an element of 'attachments' is not base64 with padding (RFC 4648, section 4)")
      }
    }
    return result
  }
}

extension EventParts {
  /// Throws if an attachment has no placeholder among the arguments, or a placeholder has no attachment.
  func checkPlaceholders() throws(EventFormatError) {
    guard !attachments.isEmpty else { return }
    var array: [UInt8] = [UInt8(ascii: "[")]
    array += arguments
    array.append(UInt8(ascii: "]"))
    guard let used = Placeholders.used(array.span, 0..<array.count, attachments: attachments.count) else {
      throw EventFormatError(
        #"a placeholder in 'args' does not have the number of an attachment: use {"_placeholder":true,"num":0} for the first"#
      )
    }
    if let missing = used.firstIndex(of: false) {
      throw EventFormatError(
        #"'args' has no place for an attachment: put {"_placeholder":true,"num":\#(missing)} where it belongs"#)
    }
  }
}

extension EventParts {
  /// The size of the largest WebSocket message that the record becomes, in bytes.
  package func largestFrame(_ version: EngineIOVersion) -> Int {
    // The text without the arguments.
    var text = ByteQueue()
    text.append(UInt8(ascii: "4"))
    var size = arguments.count
    switch kind {
    case .event, .rawEvent:
      if !arguments.isEmpty { size += 1 }
      SocketIOPacket.writeEvent(
        name: name.span, arguments: Span(), attachments: attachments.count, namespace: namespace.span,
        id: id == 0 ? nil : id, into: &text)
    case .acknowledgement:
      SocketIOPacket.writeAcknowledgement(
        id, arguments: Span(), attachments: attachments.count, namespace: namespace.span, into: &text)
    }
    let prefix = EngineIOPacket.binaryPrefix(version).count
    return max(size + text.count, (attachments.map(\.count).max() ?? 0) + prefix)
  }
}
