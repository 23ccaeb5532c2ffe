import ByteStreams
import HTTPCodec

/// A whole server connection: successive requests, each with a response.
///
/// Input: a byte for the pieces, a byte for the limits, then the bytes that a client sends.
enum RequestHeadTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let limits = reader.byte() & 1 == 0 ? HTTPLimits() : .tight
    let bytes = reader.rest
    let whole = try ServerReading.transcript(of: bytes, cutBy: .none, limits) { head, raw throws(Finding) in
      try ReferenceHead(raw).check(head, limits)
    }
    let cut = try ServerReading.transcript(of: bytes, cutBy: cuts, limits)
    try whole.requireAgreement(with: cut, "in pieces it reads")
  }
}

/// An accepted request head, parsed again by simple splitting. An accepted head must mean the same to every other
/// parser (RFC 9112 §2–§6). Otherwise a client could smuggle requests.
private struct ReferenceHead {
  private let lines: [ArraySlice<UInt8>]
  private let byteCount: Int

  /// - Parameter raw: the bytes of the head, including the empty lines before it.
  init(_ raw: Span<UInt8>) throws(Finding) {
    var bytes = [UInt8](copying: raw)[...]
    while bytes.starts(with: [0x0D, 0x0A]) { bytes = bytes.dropFirst(2) }
    byteCount = bytes.count
    var lines: [ArraySlice<UInt8>] = []
    var start = bytes.startIndex
    for index in bytes.indices {
      let byte = bytes[index]
      try require(
        byte >= 0x20 && byte != 0x7F || [0x09, 0x0A, 0x0D].contains(byte), "accepted: the control byte \(byte)")
      if byte == 0x0D { try require(index + 1 < bytes.endIndex && bytes[index + 1] == 0x0A, "accepted: a bare CR") }
      guard byte == 0x0A else { continue }
      try require(index > start && bytes[index - 1] == 0x0D, "accepted: a bare LF")
      lines.append(bytes[start..<index - 1])
      start = index + 1
    }
    try require(start == bytes.endIndex && lines.last?.isEmpty == true, "the head does not end with an empty line")
    self.lines = lines.dropLast()
  }

  func check(_ head: borrowing HTTPRequestHead, _ limits: HTTPLimits) throws(Finding) {
    try checkRequestLine(head, limits)
    let fields = try self.fields()
    try require(
      fields.count == head.fields.count, "the head has \(fields.count) fields, \(head.fields.count) were read")
    try require(fields.count <= limits.fieldCount, "accepted: \(fields.count) fields")
    try require(byteCount <= limits.headBytes, "accepted: a head of \(byteCount) bytes")
    for (index, field) in fields.enumerated() {
      let isRead =
        [UInt8](copying: head.fields.name(at: index)) == field.name
        && [UInt8](copying: head.fields.value(at: index)) == field.value
      try require(isRead, "field \(index) differs")
    }
    try checkFraming(head, fields, limits)
  }

  private func checkRequestLine(_ head: borrowing HTTPRequestHead, _ limits: HTTPLimits) throws(Finding) {
    let line = lines.first ?? []
    try require(line.count <= limits.requestLineBytes, "accepted: a request line of \(line.count) bytes")
    let parts = line.split(separator: 0x20, omittingEmptySubsequences: false)
    try require(parts.count == 3, "accepted: a request line of \(parts.count) parts")
    try require(Array(parts[0]) == [UInt8](copying: head.methodBytes), "the method differs")
    try require(Array(parts[1]) == [UInt8](copying: head.target), "the target differs")
    let version = String(decoding: parts[2], as: UTF8.self)
    try require(version.hasPrefix("HTTP/1.") && version.utf8.count == 8, "accepted: version \(version)")
    try require(head.isHTTP10 == (version == "HTTP/1.0"), "the version differs")
    guard head.targetForm == .origin else { return }
    let halves = parts[1].split(separator: UInt8(ascii: "?"), maxSplits: 1, omittingEmptySubsequences: false)
    try require(Array(halves[0]) == [UInt8](copying: head.path), "the path differs")
    try require(Array(halves.dropFirst().first ?? []) == [UInt8](copying: head.query), "the query differs")
  }

  private func fields() throws(Finding) -> [(name: [UInt8], value: [UInt8])] {
    var fields: [(name: [UInt8], value: [UInt8])] = []
    for line in lines.dropFirst() {
      guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else {
        throw Finding("accepted: a line without a colon")
      }
      let name = line[..<colon]
      try require(!name.isEmpty && name.allSatisfy(isToken), "accepted: a field name that is not a token")
      var value = line[(colon + 1)...]
      while let first = value.first, first == 0x20 || first == 0x09 { value.removeFirst() }
      while let last = value.last, last == 0x20 || last == 0x09 { value.removeLast() }
      fields.append((Array(name), Array(value)))
    }
    return fields
  }

  private func checkFraming(
    _ head: borrowing HTTPRequestHead, _ fields: [(name: [UInt8], value: [UInt8])], _ limits: HTTPLimits
  ) throws(Finding) {
    func values(_ name: String) -> [String] {
      fields.filter { Self.lowercased($0.name) == name }.map { Self.lowercased($0.value) }
    }
    let hosts = values("host")
    try require(hosts.count == 1 || hosts.isEmpty && head.isHTTP10, "accepted: \(hosts.count) Host fields")
    let codings = values("transfer-encoding")
    let lengths = values("content-length")
    switch head.framing {
    case .chunked:
      try require(lengths.isEmpty && !head.isHTTP10, "accepted: chunked with a length, or in HTTP/1.0")
      let elements = codings.flatMap { $0.split { ", \t".contains($0) } }
      try require(elements == ["chunked"], "read as chunked: \(codings)")
    case .length(let count):
      try require(
        codings.isEmpty && lengths.count == 1 && Int(lengths[0]) == count, "read as \(count) bytes: \(lengths)")
      try require(count <= limits.bodyBytes, "accepted: a body of \(count) bytes")
    case .none:
      let isZero = lengths.allSatisfy { !$0.isEmpty && $0.utf8.allSatisfy { $0 == UInt8(ascii: "0") } }
      try require(codings.isEmpty && lengths.count <= 1 && isZero, "read as no body: \(codings), \(lengths)")
    }
  }

  private static func lowercased(_ bytes: [UInt8]) -> String {
    String(decoding: bytes.map { $0 >= 0x41 && $0 <= 0x5A ? $0 + 0x20 : $0 }, as: UTF8.self)
  }
}
