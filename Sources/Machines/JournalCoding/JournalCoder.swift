import ByteStreams

/// Writes or reads stored bytes. One description of a value serves both: a method takes the value to write, and returns
/// the value that it has written or read. While the coder reads, the argument is nil or ignored.
///
/// Integers are written in groups of seven bits, the lowest first. The input may be damaged. Damaged input cannot stop
/// the program, and cannot cause allocations that are larger than the input. After the damage, every value is read as
/// zero or empty.
package struct JournalCoder: ~Copyable, ~Escapable {
  private var output = ByteQueue()
  private let input: Span<UInt8>
  private var offset = 0
  private let isReading: Bool
  package private(set) var isDamaged = false

  /// Appends to `output`, which `finish` returns.
  @_lifetime(immortal)
  package init(appendingTo output: consuming ByteQueue) {
    self.output = output
    input = Span()
    isReading = false
  }

  @_lifetime(copy input)
  package init(reading input: Span<UInt8>) {
    self.input = input
    isReading = true
  }

  package consuming func finish() -> ByteQueue { output }

  /// The number of bytes that are left to read.
  package var rest: Int { input.count - offset }

  /// Marks the input as damaged unless `isValid`. The condition must be true for every value that is written.
  package mutating func require(_ isValid: Bool) {
    guard isReading, !isValid else { return }
    isDamaged = true
    offset = input.count
  }

  // MARK: Integers

  package mutating func byte(_ value: UInt8?) -> UInt8 {
    if !isReading {
      let value = value ?? 0
      output.append(value)
      return value
    }
    require(rest > 0)
    guard !isDamaged else { return 0 }
    defer { offset += 1 }
    return input[offset]
  }

  package mutating func flag(_ value: Bool?) -> Bool {
    let byte = byte(value == true ? 1 : 0)
    require(byte <= 1)
    return byte == 1
  }

  package mutating func varint(_ value: UInt64?, through largest: UInt64 = .max) -> UInt64 {
    if !isReading {
      let value = value ?? 0
      var rest = value
      while rest >= 0x80 {
        output.append(UInt8(truncatingIfNeeded: rest) | 0x80)
        rest >>= 7
      }
      output.append(UInt8(truncatingIfNeeded: rest))
      return value
    }
    var result: UInt64 = 0
    var shift: UInt64 = 0
    var next: UInt8
    repeat {
      next = byte(nil)
      let bits = UInt64(next & 0x7F)
      require(shift < 63 || shift == 63 && bits <= 1)
      result |= bits << shift
      shift += 7
    } while next & 0x80 != 0 && !isDamaged
    require(result <= largest)
    return isDamaged ? 0 : result
  }

  /// A number or a count, below 2^62 so that it can be incremented.
  package mutating func count(_ value: UInt64?) -> UInt64 { varint(value, through: 1 << 62 - 1) }

  /// The number of a push or message. Twice the number fits into 63 bits.
  package mutating func number(_ value: UInt64?) -> UInt64 {
    let number = count(value)
    require(number > 0)
    return number
  }

  /// A position in a log: twice the number of a push, plus one if the position is after the gap that follows this push.
  package mutating func position(_ value: UInt64?) -> UInt64 { varint(value, through: 1 << 63 - 1) }

  /// A signed integer. Numbers near zero are short, whatever their sign.
  package mutating func signed(_ value: Int64?) -> Int64 {
    let bits = varint(value.map { UInt64(bitPattern: $0 << 1 ^ $0 >> 63) })
    return Int64(bitPattern: bits >> 1) ^ -Int64(bitPattern: bits & 1)
  }

  /// An integer in eight bytes.
  package mutating func fixed(_ value: UInt64?) -> UInt64 {
    var result: UInt64 = 0
    for shift in stride(from: 0 as UInt64, to: 64, by: 8) {
      result |= UInt64(byte(value.map { UInt8(truncatingIfNeeded: $0 >> shift) })) << shift
    }
    return result
  }

  // MARK: Other values

  /// - Parameter other: the result for a damaged value.
  package mutating func raw<Value: RawRepresentable<UInt8>>(_ value: Value?, or other: Value) -> Value {
    let value = Value(rawValue: byte(value?.rawValue))
    require(value != nil)
    return value ?? other
  }

  /// A flag, followed by the value if there is one.
  @inline(__always)
  package mutating func optional<Value>(_ value: Value?, _ code: (inout JournalCoder, Value?) -> Value) -> Value? {
    flag(value != nil) ? code(&self, value) : nil
  }

  package mutating func bytes(_ value: [UInt8]?) -> [UInt8] {
    if let value, !isReading {
      write(value.span)
      return value
    }
    return read()
  }

  package mutating func byteString(_ value: ByteString?) -> ByteString {
    if let value, !isReading {
      write(value.bytes)
      return value
    }
    return ByteString(read())
  }

  package mutating func text(_ value: String?) -> String {
    if let value, !isReading {
      _ = varint(UInt64(value.utf8.count))
      output.append(value)
      return value
    }
    let text = String(validating: read(), as: UTF8.self)
    require(text != nil)
    return text ?? ""
  }

  private mutating func write(_ bytes: Span<UInt8>) {
    _ = varint(UInt64(bytes.count))
    output.append(bytes)
  }

  private mutating func read() -> [UInt8] {
    let count = varint(nil)
    require(count <= UInt64(rest))
    guard !isDamaged else { return [] }
    defer { offset += Int(count) }
    return [UInt8](copying: input.extracting(offset..<offset + Int(count)))
  }
}

/// A value whose initialiser both writes and reads it.
package protocol JournalRecord {
  /// Writes `value` and copies it, or reads a value if `value` is nil.
  init(_ value: Self?, _ coder: inout JournalCoder)
}
