import ByteStreams
import Continuity
import JSONCodec

extension SocketIOConversation {
  /// Writes a CONNECT. `credentials` is a JSON object in version 4 and the parameters of a query in version 3; empty if
  /// there are none. In version 3, the default namespace needs no CONNECT, so nothing is written for it. Returns false
  /// if `credentials` is not an object.
  package mutating func connect(
    _ namespace: Int, credentials: Span<UInt8> = Span(), into output: inout ByteQueue
  ) -> Bool {
    if version == .three { return connectVersion3(namespace, credentials, &output) }
    var members = Span<UInt8>()
    if !credentials.isEmpty {
      guard JSONValidator.isValid(credentials), JSONObject(credentials) != nil else { return false }
      members = Self.inside(credentials)
    }
    if namespaces[namespace].state == .idle { namespaces[namespace].state = .connecting }
    let name = namespaces[namespace].name
    output.append(UInt8(ascii: "4"))
    SocketIOPacket.writeHead(.connect, namespace: name.span, into: &output)
    let recovery = namespaces[namespace].recovery
    guard let recovery, let offset = recovery.offset else {
      output.append(credentials)
      return true
    }
    output.append(#"{"pid":"#)
    output.append(jsonString: recovery.pid.span)
    output.append(#","offset":"#)
    output.append(jsonString: offset.span)
    if !members.isEmpty { output.append(UInt8(ascii: ",")) }
    output.append(members)
    output.append(UInt8(ascii: "}"))
    return true
  }

  private mutating func connectVersion3(
    _ namespace: Int, _ query: Span<UInt8>, _ output: inout ByteQueue
  ) -> Bool {
    if namespaces[namespace].state == .idle { namespaces[namespace].state = .connecting }
    let name = namespaces[namespace].name
    guard !name.span.equals("/") else { return true }
    output.append("40")
    output.append(name)
    if !query.isEmpty { output.append(UInt8(ascii: "?")) }
    output.append(query)
    output.append(UInt8(ascii: ","))
    return true
  }

  /// The content between the braces of an object, without the whitespace around it.
  @_lifetime(copy object)
  private static func inside(_ object: Span<UInt8>) -> Span<UInt8> {
    var start = 0
    var end = object.count
    func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 }
    while isSpace(object[start]) { start += 1 }
    start += 1
    while isSpace(object[end - 1]) { end -= 1 }
    end -= 1
    while start < end, isSpace(object[start]) { start += 1 }
    return object.extracting(start..<end)
  }

  /// Writes the pong to a ping.
  package func writePong(_ content: Span<UInt8>, into output: inout ByteQueue) {
    EngineIOPacket.write(.pong, content: content, into: &output)
  }

  /// Writes an event up to its arguments. The caller appends the arguments and `SocketIOPacket.argumentsEnd`, and then
  /// sends the attachments in binary messages. If an event with an id is sent, the caller must call
  /// `expectAcknowledgement`.
  package func writeEventHead(
    name: Span<UInt8>, hasArguments: Bool, attachments: Int, namespace: Int, id: UInt64? = nil,
    into output: inout ByteQueue
  ) {
    let space = namespaces[namespace].name
    output.append(UInt8(ascii: "4"))
    SocketIOPacket.writeEventHead(
      name: name, hasArguments: hasArguments, attachments: attachments, namespace: space.span, id: id,
      into: &output)
  }

  /// Writes an acknowledgement up to its arguments, without checking `owed`: the caller has removed the acknowledgement
  /// from `owed` with `takeOwed` or `settle`. An acknowledgement may be written again after its bytes were taken back
  /// from the output.
  package func writeAcknowledgementHead(
    _ id: UInt64, attachments: Int, namespace: Int, into output: inout ByteQueue
  ) {
    let space = namespaces[namespace].name
    output.append(UInt8(ascii: "4"))
    SocketIOPacket.writeAcknowledgementHead(id, attachments: attachments, namespace: space.span, into: &output)
  }

  /// Writes an acknowledgement that the server has requested, once. Returns false if the server has not requested it,
  /// or if it was sent already.
  package mutating func writeAcknowledgement(
    _ id: UInt64, arguments: Span<UInt8> = Span(), attachments: Int = 0, namespace: Int, into output: inout ByteQueue
  ) -> Bool {
    guard isConnected(namespace), takeOwed(AcknowledgementID(namespace: namespace, id: id)) else {
      return false
    }
    let space = namespaces[namespace].name
    output.append(UInt8(ascii: "4"))
    SocketIOPacket.writeAcknowledgement(
      id, arguments: arguments, attachments: attachments, namespace: space.span, into: &output)
    return true
  }
}
