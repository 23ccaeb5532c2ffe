import ByteStreams
import JSONCodec

extension SocketIOPacket {
  /// Writes the packet up to its JSON.
  package static func writeHead(
    _ kind: Kind, attachments: Int = 0, namespace: Span<UInt8>, id: UInt64? = nil, into output: inout ByteQueue
  ) {
    output.append(kind.rawValue &+ 0x30)
    if kind.isBinary {
      output.append(decimal: attachments)
      output.append(UInt8(ascii: "-"))
    }
    if !namespace.equals("/") {
      output.append(namespace)
      output.append(UInt8(ascii: ","))
    }
    if let id { output.append(decimal: id) }
  }

  /// Writes an event. `arguments` are JSON values with commas between them, or empty.
  ///
  /// Without attachments, it writes an EVENT and never a BINARY_EVENT. Parsers before 4.2.2 fail on the packet after a
  /// BINARY_EVENT without attachments (CVE-2026-69185).
  package static func writeEvent(
    name: Span<UInt8>, arguments: Span<UInt8>, attachments: Int, namespace: Span<UInt8>, id: UInt64? = nil,
    into output: inout ByteQueue
  ) {
    writeEventHead(
      name: name, hasArguments: !arguments.isEmpty, attachments: attachments, namespace: namespace, id: id,
      into: &output)
    output.append(arguments)
    output.append(argumentsEnd)
  }

  /// Writes an event up to its arguments. `argumentsEnd` follows them.
  static func writeEventHead(
    name: Span<UInt8>, hasArguments: Bool, attachments: Int, namespace: Span<UInt8>, id: UInt64?,
    into output: inout ByteQueue
  ) {
    let kind: Kind = attachments > 0 ? .binaryEvent : .event
    writeHead(kind, attachments: attachments, namespace: namespace, id: id, into: &output)
    output.append(UInt8(ascii: "["))
    output.append(jsonString: name)
    if hasArguments { output.append(UInt8(ascii: ",")) }
  }

  /// The end of the JSON array with the arguments.
  package static var argumentsEnd: UInt8 { UInt8(ascii: "]") }

  /// Writes an acknowledgement. `arguments` are JSON values with commas between them, or empty.
  package static func writeAcknowledgement(
    _ id: UInt64, arguments: Span<UInt8>, attachments: Int, namespace: Span<UInt8>, into output: inout ByteQueue
  ) {
    writeAcknowledgementHead(id, attachments: attachments, namespace: namespace, into: &output)
    output.append(arguments)
    output.append(argumentsEnd)
  }

  /// Writes an acknowledgement up to its arguments. `argumentsEnd` follows them.
  static func writeAcknowledgementHead(
    _ id: UInt64, attachments: Int, namespace: Span<UInt8>, into output: inout ByteQueue
  ) {
    let kind: Kind = attachments > 0 ? .binaryAcknowledgement : .acknowledgement
    writeHead(kind, attachments: attachments, namespace: namespace, id: id, into: &output)
    output.append(UInt8(ascii: "["))
  }

  /// Whether the Socket.IO libraries use the name themselves. If a server receives an event with a reserved name, its
  /// parser closes the connection with all its namespaces.
  package static func isReservedEventName(_ name: Span<UInt8>) -> Bool {
    name.equals("connect") || name.equals("connect_error") || name.equals("disconnect") || name.equals("disconnecting")
      || name.equals("newListener") || name.equals("removeListener")
  }
}
