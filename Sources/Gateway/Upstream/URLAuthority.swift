/// `user:password@host:port`, the authority of a URL (RFC 3986 §3.2), taken apart.
struct URLAuthority {
  /// As it stands there, percent-encoded.
  let userinfo: Substring?
  /// Name or address, without brackets.
  let host: String
  let port: UInt16?

  init(_ text: Substring) throws(UpstreamURLError) {
    var rest = text
    if let at = rest.lastIndex(of: "@") {
      userinfo = rest[..<at]
      rest = rest[rest.index(after: at)...]
    } else {
      userinfo = nil
    }
    var portText: Substring?
    if rest.hasPrefix("[") {
      guard let close = rest.firstIndex(of: "]") else { throw .badHost }
      host = String(rest[rest.index(after: rest.startIndex)..<close])
      let after = rest[rest.index(after: close)...]
      guard after.isEmpty || after.hasPrefix(":") else { throw .badHost }
      if !after.isEmpty { portText = after.dropFirst() }
    } else {
      let parts = rest.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      host = String(parts[0])
      if parts.count > 1 { portText = parts[1] }
    }
    guard !host.isEmpty else { throw .badHost }
    if let portText {
      guard let number = UInt16(portText), number > 0 else { throw .badPort }
      port = number
    } else {
      port = nil
    }
  }

  static func percentDecoded(_ text: Substring) throws(UpstreamURLError) -> String {
    var bytes: [UInt8] = []
    var rest = text.utf8
    while let byte = rest.popFirst() {
      guard byte == UInt8(ascii: "%") else {
        bytes.append(byte)
        continue
      }
      guard let high = rest.popFirst(), let low = rest.popFirst(),
        let value = UInt8(String(decoding: [high, low], as: UTF8.self), radix: 16)
      else { throw .badEscape }
      bytes.append(value)
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}
