import RESPCodec

/// A simple recursive reader of complete input, for comparison with the incremental reader.
struct ReferenceRESP {
  private enum Stop: Error {
    case incomplete
    case malformed
  }

  private let input: [UInt8]
  private let limits: RESPLimits
  private var position = 0
  private var bytes = 0
  private var elements = 0

  /// The replies before the end of the input, or before malformed bytes.
  static func read(_ input: [UInt8], _ limits: RESPLimits) -> (replies: [RESPReply], isMalformed: Bool) {
    var reader = ReferenceRESP(input: input, limits: limits)
    var replies: [RESPReply] = []
    while true {
      (reader.bytes, reader.elements) = (0, 0)
      do throws(Stop) {
        replies.append(try reader.value(depth: 0))
      } catch {
        return (replies, error == .malformed)
      }
    }
  }

  private init(input: [UInt8], limits: RESPLimits) {
    self.input = input
    self.limits = limits
  }

  private mutating func value(depth: Int) throws(Stop) -> RESPReply {
    guard position < input.count else { throw .incomplete }
    let kind = input[position]
    guard Array("+-:$*".utf8).contains(kind) else { throw .malformed }
    let line = try line()
    let text = String(decoding: line.dropFirst(), as: UTF8.self)
    switch kind {
    case UInt8(ascii: "+"): return .simple(text)
    case UInt8(ascii: "-"): return .error(text)
    case UInt8(ascii: ":"):
      let digits = line.dropFirst().filter { $0 >= 0x30 && $0 <= 0x39 }.count
      guard digits <= 19, let value = Int64(text) else { throw .malformed }
      return .integer(value)
    case UInt8(ascii: "$"):
      guard let length = try length(text) else { return .null }
      return .bulk(try string(length))
    default:
      guard let count = try length(text) else { return .null }
      guard depth < limits.depth, count <= limits.elements - elements else { throw .malformed }
      elements += count
      var values: [RESPReply] = []
      for _ in 0..<count { values.append(try value(depth: depth + 1)) }
      return .array(values)
    }
  }

  private mutating func line() throws(Stop) -> [UInt8] {
    guard let end = input[position...].firstIndex(of: 10) else {
      throw input.count - position > limits.lineBytes + 1 ? .malformed : .incomplete
    }
    let line = input[position..<end]
    guard line.last == 13, line.count - 1 <= limits.lineBytes, !line.dropLast().contains(13) else { throw .malformed }
    position = end + 1
    try count(line.count + 1)
    return Array(line.dropLast())
  }

  private func length(_ text: String) throws(Stop) -> Int? {
    if text == "-1" { return nil }
    guard !text.isEmpty, text.utf8.count <= 19, text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }),
      let value = Int(text)
    else { throw .malformed }
    return value
  }

  private mutating func string(_ length: Int) throws(Stop) -> [UInt8] {
    guard length <= limits.replyBytes else { throw .malformed }
    try count(length + 2)
    guard input.count - position >= length + 2 else { throw .incomplete }
    let end = position + length
    guard input[end] == 13, input[end + 1] == 10 else { throw .malformed }
    defer { position = end + 2 }
    return Array(input[position..<end])
  }

  private mutating func count(_ more: Int) throws(Stop) {
    bytes += more
    guard bytes <= limits.replyBytes else { throw .malformed }
  }
}
