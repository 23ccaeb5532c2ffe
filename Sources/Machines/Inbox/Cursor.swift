import ByteStreams

/// A position in the log of pushes: after a message, or after the upstream gap that follows it.
///
/// The text form is `p-epoch.number`, with a final `g` after a gap. Clients treat the text as opaque and send it back
/// unchanged. The id of a message is the cursor after it. The epoch identifies one lifetime of the log, and is drawn at
/// random at its start. A cursor with another epoch is from before a restart.
///
/// A stored log keeps its epoch, and begins a term each time the store is opened: `p-epoch.term.number`. So no two
/// messages have the same id, even if the store has lost the last messages of an earlier term.
package struct Cursor: Hashable, Sendable {
  package let epoch: Epoch
  /// Twice the number of the last message before the position, plus one if the position is after the gap that follows
  /// this message. Gaps without a message in between count as one gap. So this number orders all positions, and gaps
  /// need no numbers of their own.
  package let position: UInt64
  /// 0 if the log is not stored.
  package let term: UInt64

  package init(epoch: Epoch, term: UInt64 = 0, sequence: UInt64, isAfterGap: Bool = false) {
    self.init(epoch: epoch, term: term, position: sequence << 1 | (isAfterGap ? 1 : 0))
  }

  package init(epoch: Epoch, term: UInt64 = 0, position: UInt64) {
    self.epoch = epoch
    self.position = position
    self.term = term
  }

  /// Number of the last message that the reader has received; 0 before the first message.
  package var sequence: UInt64 { position >> 1 }
  var isAfterGap: Bool { position & 1 == 1 }

  /// Distinguishes cursors and push ids from delivery ids, which begin with `d-`.
  package static let prefix: StaticString = "p-"
  /// Maximum bytes of a cursor: the prefix, the epoch, a dot, the 19 digits of the term, a dot, 19 digits, the mark of
  /// a gap.
  package static let maximumTextLength = 2 + Epoch.textLength + 1 + 19 + 1 + 19 + 1

  package func write(into output: inout ByteQueue) {
    output.append(Self.prefix)
    epoch.write(into: &output)
    output.append(UInt8(ascii: "."))
    if term > 0 {
      output.append(decimal: term)
      output.append(UInt8(ascii: "."))
    }
    output.append(decimal: sequence)
    if isAfterGap { output.append(UInt8(ascii: "g")) }
  }

  package init?(_ text: Span<UInt8>) {
    let start = Self.prefix.utf8CodeUnitCount
    let dot = start + Epoch.textLength
    guard text.count > dot + 1, text.count <= Self.maximumTextLength, text.starts(with: Self.prefix),
      text[dot] == UInt8(ascii: "."), let epoch = Epoch(text.extracting(start..<dot))
    else { return nil }
    let isAfterGap = text[text.count - 1] == UInt8(ascii: "g")
    guard let (term, number) = TermNumber.read(text.extracting((dot + 1)..<(text.count - (isAfterGap ? 1 : 0))))
    else { return nil }
    self.init(epoch: epoch, term: term, sequence: number, isAfterGap: isAfterGap)
  }

  /// The cursor at the start of an entity tag. A proxy that compresses a response appends to its tag: `-gzip` (Apache,
  /// lighttpd), `-br` (Apache), `--gzip` (Jetty), `;gz` (LiteSpeed). A suffix is ignored if its first character cannot
  /// occur in a cursor.
  package init?(entityTag: Span<UInt8>) {
    let prefix = Self.prefix.utf8CodeUnitCount
    guard entityTag.count > prefix else { return nil }
    var end = prefix
    while end < entityTag.count, Self.isInCursor(entityTag[end]) { end += 1 }
    self.init(entityTag.extracting(first: end))
  }

  private static func isInCursor(_ byte: UInt8) -> Bool {
    ASCII.isDigit(byte) || ASCII.lowercased(byte) &- UInt8(ascii: "a") < 26 || byte == UInt8(ascii: ".")
  }

  /// Whether this is a later position than `other` in the same log.
  package func isLater(than other: Cursor) -> Bool {
    epoch == other.epoch && (term, position) > (other.term, other.position)
  }
}

/// A number with the term in which it was issued: `number`, or `term.number` with a term above 0.
package enum TermNumber {
  /// Returns nil if the text is malformed.
  package static func read(_ text: Span<UInt8>) -> (term: UInt64, number: UInt64)? {
    guard let dot = text.firstIndex(of: UInt8(ascii: ".")) else {
      return text.decimalValue().map { (0, UInt64($0)) }
    }
    guard let term = text.extracting(first: dot).decimalValue(), term > 0,
      text[0] != UInt8(ascii: "0"), let number = text.extracting(dot + 1..<text.count).decimalValue()
    else { return nil }
    return (UInt64(term), UInt64(number))
  }
}

/// 48 random bits, written as twelve hexadecimal digits.
package struct Epoch: Hashable, Sendable {
  package let value: UInt64

  package init(_ value: UInt64) { self.value = value & 0xFFFF_FFFF_FFFF }

  package init(using generator: inout some RandomNumberGenerator) { self.init(generator.next() as UInt64) }

  package static let textLength = 12

  package func write(into output: inout ByteQueue) {
    output.append(hexadecimal: value, digits: Self.textLength)
  }

  init?(_ text: Span<UInt8>) {
    guard text.count == Self.textLength, let value = text.hexadecimalValue() else { return nil }
    self.value = value
  }
}

/// The position at which a client requests to start reading.
package enum StartingPoint: Hashable, Sendable {
  case cursor(Cursor)
  /// At a cursor from the validator of an earlier response (`If-None-Match`); nil if the validator is not a cursor. If
  /// the validator is not a cursor of this log, reading starts at the next message, with a gap.
  case validator(Cursor?)
  /// At the first message since the start of the log.
  case earliest
  /// At the next message that arrives.
  case latest
  /// At the last n messages.
  case last(UInt64)
  /// At the first message that arrived within this time before now.
  case since(TimeSpan)

  /// The cursor, if the client sent one.
  package var cursor: Cursor? {
    switch self {
    case .cursor(let cursor): cursor
    case .validator(let cursor): cursor
    case .earliest, .latest, .last, .since: nil
    }
  }

  /// The accepted values of the `cursor` parameter, for an error message.
  package static let expectation = "the cursor of an earlier response, 'earliest' or 'latest'"

  /// Parses the value of the `cursor` parameter. Returns nil if the value is malformed.
  package init?(cursor text: Span<UInt8>) {
    if text.equals("earliest") {
      self = .earliest
    } else if text.equals("latest") {
      self = .latest
    } else {
      guard let cursor = Cursor(text) else { return nil }
      self = .cursor(cursor)
    }
  }
}

/// The position where a read begins.
package struct ReadStart: Hashable, Sendable {
  package let cursor: Cursor
  /// A gap before the cursor, of unknown size. The reason of the gap: the request reaches back to messages that
  /// retention has dropped (`retention`), its position is not in this log (`restart`), or the store has lost messages
  /// that the reader has received (`store`).
  package let gap: Gap.Reason?

  package init(_ cursor: Cursor, gap: Gap.Reason? = nil) {
    self.cursor = cursor
    self.gap = gap
  }

  /// Whether a read of a log that ends at `end` would return a message or a gap, or another position because the log
  /// has begun a term.
  package func precedes(_ end: Cursor) -> Bool {
    gap != nil || cursor.epoch != end.epoch || cursor.term != end.term || cursor.position < end.position
  }
}
