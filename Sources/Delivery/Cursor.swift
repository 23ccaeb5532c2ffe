import ByteStreams

/// A place in the log of pushes: after the message with this sequence number. Written `epoch.sequence`; clients hand it
/// back as it came.
///
/// The epoch names one life of the log, drawn at random when it starts; a cursor of another epoch is from before a restart.
package struct Cursor: Hashable, Sendable {
  package let epoch: Epoch
  /// Sequence number of the last message that the reader has had; 0 before the first.
  package let sequence: UInt64

  package init(epoch: Epoch, sequence: UInt64) {
    self.epoch = epoch
    self.sequence = sequence
  }

  /// Bytes a written cursor takes at most: 12 for the epoch, the dot, 20 digits.
  package static let longestText = 33

  package func write(into output: inout ByteQueue) {
    epoch.write(into: &output)
    output.append(UInt8(ascii: "."))
    output.append(decimal: sequence)
  }
}

/// 48 random bits, written as twelve hexadecimal digits.
package struct Epoch: Hashable, Sendable {
  package let value: UInt64

  package init(_ value: UInt64) { self.value = value & 0xFFFF_FFFF_FFFF }

  package init(using generator: inout some RandomNumberGenerator) { self.init(generator.next() as UInt64) }

  package static let textLength = 12

  package func write(into output: inout ByteQueue) {
    var shift: UInt64 = 48
    while shift > 0 {
      shift &-= 4
      let digit = UInt8(truncatingIfNeeded: value >> shift & 15)
      output.append(digit < 10 ? digit &+ 0x30 : digit &+ 0x57)
    }
  }

  init?(_ text: Span<UInt8>) {
    guard text.count == Self.textLength else { return nil }
    var value: UInt64 = 0
    for index in text.indices {
      let byte = text[index]
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(byte &- 0x30)
      case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(byte &- 0x57)
      default: return nil
      }
    }
    self.value = value
  }
}

/// Where a reader wants to start, as it wrote it.
package enum StartingPoint: Hashable, Sendable {
  case cursor(Cursor)
  /// With the oldest message retained.
  case earliest
  /// With the next message.
  case latest
  /// With the last so many.
  case last(UInt64)
  /// With what arrived in this time before now.
  case since(TimeSpan)

  /// What a client is told when it is none of these.
  package static let expectation =
    "a cursor from an earlier answer, 'earliest', 'latest', '-n' for the last n, or 'since=10m'"

  /// Reads the value of `cursor`; nil where it is malformed. `duration` reads a length of time such as `10m`.
  package init?(_ text: Span<UInt8>, duration: (Span<UInt8>) -> TimeSpan?) {
    if text.equals("earliest") {
      self = .earliest
    } else if text.equals("latest") {
      self = .latest
    } else if text.starts(with: "since=") {
      guard let span = duration(text.extracting(6..<text.count)), span >= .zero else { return nil }
      self = .since(span)
    } else if text.starts(with: "-") {
      guard let count = text.extracting(1..<text.count).decimalValue() else { return nil }
      self = .last(UInt64(count))
    } else {
      guard text.count > Epoch.textLength + 1, text.count <= Cursor.longestText,
        text[Epoch.textLength] == UInt8(ascii: "."),
        let epoch = Epoch(text.extracting(first: Epoch.textLength)),
        let sequence = text.extracting((Epoch.textLength + 1)..<text.count).decimalValue()
      else { return nil }
      self = .cursor(Cursor(epoch: epoch, sequence: UInt64(sequence)))
    }
  }
}
