import ByteStreams

/// An event of an upstream protocol, or an acknowledgement, in one piece of memory: outgoing in the outbox, incoming on
/// its way to the inbox.
///
/// The numbers that belong to one connection come first and the token last. So if two connections deliver the same
/// event, the bytes between these numbers and the token are equal.
package struct EventRecord: ~Escapable {
  package enum Kind: UInt8, Sendable {
    case event = 1
    case acknowledgement
    /// An event that is not valid inside a JSON document. `arguments` is its text as the upstream has sent it.
    case rawEvent
  }

  private let bytes: Span<UInt8>
  package let kind: Kind
  /// The id of this acknowledgement, or of the acknowledgement that this event requests; 0 if there is none.
  package let id: UInt64
  /// The connection on which an acknowledgement must be sent.
  package let connection: UInt64
  package let attachmentCount: Int

  private static var idOffset: Int { 1 }
  private static var tokenLengthOffset: Int { 17 }
  private static var countOffset: Int { 21 }
  private static var lengthsOffset: Int { 23 }
  /// Namespace, name and arguments, before the attachments.
  private static var fixedParts: Int { 3 }

  /// Whether the bytes are a record. The bytes of a message that was queued for another kind of upstream are not a
  /// record.
  package static func isValid(_ bytes: Span<UInt8>) -> Bool {
    guard bytes.count >= lengthsOffset, Kind(rawValue: bytes[0]) != nil else { return false }
    let parts = fixedParts &+ number(bytes, countOffset, 2)
    var end = lengthsOffset &+ 4 &* parts
    guard bytes.count >= end else { return false }
    for part in 0..<parts { end &+= length(bytes, part) }
    return end &+ number(bytes, tokenLengthOffset, 4) == bytes.count
  }

  /// `bytes` must be valid.
  @_lifetime(copy bytes)
  package init(_ bytes: Span<UInt8>) {
    guard let kind = Kind(rawValue: bytes[0]) else { preconditionFailure("not a record") }
    self.bytes = bytes
    self.kind = kind
    id = UInt64(truncatingIfNeeded: Self.number(bytes, Self.idOffset, 8))
    connection = UInt64(truncatingIfNeeded: Self.number(bytes, Self.idOffset &+ 8, 8))
    attachmentCount = Self.number(bytes, Self.countOffset, 2)
  }

  package var namespace: Span<UInt8> {
    @_lifetime(copy self)
    get { bytes.extracting(range(of: 0)) }
  }

  /// The event's name, without quotation marks.
  package var name: Span<UInt8> {
    @_lifetime(copy self)
    get { bytes.extracting(range(of: 1)) }
  }

  /// JSON values with commas between them, or empty.
  package var arguments: Span<UInt8> {
    @_lifetime(copy self)
    get { bytes.extracting(range(of: 2)) }
  }

  /// Identifies the acknowledgement that a client may send; empty if none is expected.
  package var token: Span<UInt8> {
    @_lifetime(copy self)
    get { bytes.extracting((bytes.count &- Self.number(bytes, Self.tokenLengthOffset, 4))..<bytes.count) }
  }

  @_lifetime(copy self)
  package func attachment(_ index: Int) -> Span<UInt8> { bytes.extracting(range(of: Self.fixedParts &+ index)) }

  /// The bytes that are equal if two connections deliver the same event.
  package var identity: Span<UInt8> {
    @_lifetime(copy self)
    get { bytes.extracting(Self.countOffset..<(bytes.count &- Self.number(bytes, Self.tokenLengthOffset, 4))) }
  }

  /// Changes the id of a record.
  package static func set(id: UInt64, in record: inout [UInt8]) {
    for index in 0..<8 {
      record[idOffset &+ index] = UInt8(truncatingIfNeeded: id >> UInt64(8 * (7 &- index)))
    }
  }

  private func range(of part: Int) -> Range<Int> {
    var start = Self.lengthsOffset &+ 4 &* (Self.fixedParts &+ attachmentCount)
    for other in 0..<part { start &+= Self.length(bytes, other) }
    return start..<start &+ Self.length(bytes, part)
  }

  private static func length(_ bytes: Span<UInt8>, _ part: Int) -> Int { number(bytes, lengthsOffset &+ 4 &* part, 4) }

  private static func number(_ bytes: Span<UInt8>, _ offset: Int, _ count: Int) -> Int {
    var value = 0
    for index in 0..<count { value = value << 8 | Int(bytes[offset &+ index]) }
    return value
  }
}

/// The parts of a record to be written.
package struct EventParts: Equatable, Sendable {
  package var kind = EventRecord.Kind.event
  package var id: UInt64 = 0
  package var connection: UInt64 = 0
  package var namespace: [UInt8] = Array("/".utf8)
  package var name: [UInt8] = []
  package var arguments: [UInt8] = []
  package var attachments: [[UInt8]] = []
  package var token: [UInt8] = []

  package init() {}

  package var record: [UInt8] {
    var output = ByteQueue()
    EventParts.write(
      kind, id: id, connection: connection, namespace: namespace.span, name: name.span, arguments: arguments.span,
      attachments: attachments, token: token.span, into: &output)
    return output.copyBytes()
  }

  package static func write(
    _ kind: EventRecord.Kind, id: UInt64 = 0, connection: UInt64 = 0, namespace: Span<UInt8>, name: Span<UInt8>,
    arguments: Span<UInt8>, attachments: [[UInt8]], token: Span<UInt8>, into output: inout ByteQueue
  ) {
    func write(_ value: UInt64, _ count: Int) {
      for index in 0..<count {
        output.append(UInt8(truncatingIfNeeded: value >> UInt64(8 * (count &- 1 &- index))))
      }
    }
    output.append(kind.rawValue)
    write(id, 8)
    write(connection, 8)
    write(UInt64(token.count), 4)
    write(UInt64(attachments.count), 2)
    for count in [namespace.count, name.count, arguments.count] { write(UInt64(count), 4) }
    for attachment in attachments { write(UInt64(attachment.count), 4) }
    output.append(namespace)
    output.append(name)
    output.append(arguments)
    for attachment in attachments { output.append(attachment) }
    output.append(token)
  }
}
