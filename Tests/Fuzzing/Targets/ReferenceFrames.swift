import WebSocketCodec

/// Parses frames (RFC 6455 §5, RFC 7692 §7.2) from the complete bytes, with copies of everything.
struct ReferenceFrames {
  struct Failure: Error, Equatable { let reason: String }

  private let bytes: [UInt8]
  private let isServer: Bool
  private let limits: WebSocketLimits
  private let compression: MessageCompression.Settings?
  private let inflater: ReferenceInflater?
  private var position = 0
  private var transcript = Transcript<Failure>()

  /// The message that is being assembled.
  private var kind: UInt8?
  private var isCompressed = false
  private var message: [UInt8] = []
  private var fragments = 0
  private var wireBytes = 0

  init(
    _ bytes: [UInt8], _ role: WebSocketRole, _ limits: WebSocketLimits, _ compression: MessageCompression.Settings?
  ) {
    self.bytes = bytes
    isServer = role == .server
    self.limits = limits
    self.compression = compression
    inflater = compression == nil ? nil : ReferenceInflater(isRaw: true)
  }

  mutating func read() -> Transcript<Failure> {
    do throws(Failure) {
      while try readFrame() {}
    } catch {
      transcript.failure = error
    }
    return transcript
  }

  private func demand(_ condition: Bool, _ reason: String) throws(Failure) {
    if !condition { throw Failure(reason: reason) }
  }

  /// Whether another frame may follow.
  private mutating func readFrame() throws(Failure) -> Bool {
    let rest = Array(bytes[position...])
    guard let first = rest.first else { return false }
    let opcode = first & 15
    let isFinal = first >= 0x80
    let isControl = opcode >= 8
    try demand([0, 1, 2, 8, 9, 10].contains(opcode), "opcode")
    try demand(first & 0x30 == 0, "reserved bits")
    let isDeflated = first & 0x40 != 0
    try demand(!isDeflated || compression != nil && (opcode == 1 || opcode == 2), "RSV1")
    try demand(isFinal || !isControl, "fragmented control frame")
    guard rest.count >= 2 else { return false }
    try demand((rest[1] >= 0x80) == isServer, "mask")
    let short = Int(rest[1] & 0x7F)
    try demand(short <= 125 || !isControl, "control frame longer than 125 bytes")
    let lengthBytes = [126: 2, 127: 8][short] ?? 0
    guard rest.count >= 2 + lengthBytes else { return false }
    var length = UInt64(short)
    if lengthBytes > 0 {
      length = rest[2..<2 + lengthBytes].reduce(0) { $0 << 8 | UInt64($1) }
      try demand(length < 1 << 63 && length > (lengthBytes == 2 ? 125 : 65_535), "length not in its shortest form")
    }
    let header = 2 + lengthBytes + (isServer ? 4 : 0)
    guard rest.count >= header else { return false }
    let key = isServer ? Array(rest[(header - 4)..<header]) : [0, 0, 0, 0]
    let available = rest[header...].prefix(Int(min(length, UInt64(rest.count))))
    let payload = available.enumerated().map { $0.element ^ key[$0.offset & 3] }
    position += header + payload.count
    let isWhole = payload.count == length
    if isControl { return isWhole ? try readControl(opcode, payload) : false }
    try begin(opcode, isDeflated, length)
    try take(payload)
    guard isWhole else { return false }
    if isFinal { try endMessage() }
    return true
  }

  private mutating func readControl(_ opcode: UInt8, _ payload: [UInt8]) throws(Failure) -> Bool {
    guard opcode == 8 else {
      transcript.note(opcode == 9 ? "i" : "o", payload)
      return true
    }
    try demand(payload.count != 1, "close frame of one byte")
    guard payload.count > 1 else {
      transcript.noteClose(nil, [])
      return false
    }
    let code = UInt16(payload[0]) * 256 + UInt16(payload[1])
    let isAllowed = (1000...1014).contains(code) && ![1004, 1005, 1006].contains(code) || (3000...4999).contains(code)
    try demand(isAllowed, "close code \(code)")
    let reason = Array(payload[2...])
    try demand(ReferenceUTF8.isValid(reason), "reason is not UTF-8")
    transcript.noteClose(code, reason)
    return false
  }

  private mutating func begin(_ opcode: UInt8, _ isDeflated: Bool, _ length: UInt64) throws(Failure) {
    try demand((opcode == 0) == (kind != nil), "fragments out of order")
    if opcode != 0 {
      kind = opcode
      isCompressed = isDeflated
      message = []
      fragments = 0
      wireBytes = 0
    }
    fragments += 1
    try demand(fragments <= limits.fragments, "fragments")
    try demand(length <= UInt64(limits.messageBytes - wireBytes), "message size")
  }

  private mutating func take(_ payload: [UInt8]) throws(Failure) {
    wireBytes += payload.count
    if isCompressed {
      try inflate(payload)
    } else {
      message += payload
    }
    if kind == 1 { try demand(ReferenceUTF8.firstFault(in: message) == nil, "text is not UTF-8") }
  }

  private mutating func inflate(_ payload: [UInt8]) throws(Failure) {
    guard let inflater else { return }
    let outcome = inflater.inflate(payload, limit: limits.messageBytes)
    message = inflater.output
    try demand(message.count <= limits.messageBytes, "inflated size")
    try demand(outcome == .good, "not DEFLATE data")
  }

  private mutating func endMessage() throws(Failure) {
    if isCompressed {
      try inflate([0, 0, 0xFF, 0xFF])
      inflater?.removeOutput()
      if compression?.inboundResets == true { inflater?.reset() }
    }
    if kind == 1 { try demand(ReferenceUTF8.isValid(message), "text is not UTF-8") }
    transcript.note(kind == 1 ? "t" : "b", message)
    kind = nil
  }
}
