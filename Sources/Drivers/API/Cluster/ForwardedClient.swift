import Access
import ByteStreams
import HTTPServer

/// The client of a forwarded request: its identity and rights, as the forwarding gateway has determined them. The
/// holder of the session trusts these values, since only gateways have the secret that the request contains.
///
/// The field `Drawbridge-Client` has the parts `principal;scopes;sessions;topics;expires;origin`. Names are in base64,
/// and the names of a list are separated by commas. Numbers are decimal, or hexadecimal in the origin.
struct ForwardedClient {
  static let field: StaticString = "drawbridge-client"

  let grant: Grant
  /// The origin for which the client's messages are counted.
  let origin: ClientOrigin

  init(_ grant: Grant, from origin: ClientOrigin) {
    self.grant = grant
    self.origin = origin
  }

  func write(into output: inout ByteQueue) {
    Base64.encode(Array(grant.principal.utf8).span, into: &output)
    output.append(";" as StaticString)
    output.append(decimal: Int(grant.scopes.rawValue))
    for patterns in [grant.sessions, grant.topics] {
      output.append(";" as StaticString)
      for (index, name) in patterns.elements.enumerated() {
        if index > 0 { output.append("," as StaticString) }
        Base64.encode(name.span, into: &output)
      }
    }
    output.append(";" as StaticString)
    if let expires = grant.expires { output.append(decimal: UInt64(max(0, expires))) }
    output.append(";" as StaticString)
    switch origin {
    case .ipv4(let address):
      output.append("4:" as StaticString)
      output.append(hexadecimal: UInt64(address))
    case .ipv6(let prefix):
      output.append("6:" as StaticString)
      output.append(hexadecimal: prefix)
    case .local: output.append("local" as StaticString)
    }
  }

  /// Returns nil for text that `write` never produces.
  init?(_ text: Span<UInt8>) {
    var parts: [Range<Int>] = []
    var start = 0
    while let end = text.firstIndex(of: UInt8(ascii: ";"), from: start) {
      parts.append(start..<end)
      start = end + 1
    }
    parts.append(start..<text.count)
    guard parts.count == 6, let principal = Base64.decode(text.extracting(parts[0])),
      let scopes = text.extracting(parts[1]).decimalValue().flatMap({ UInt8(exactly: $0) }),
      scopes & ~Scopes.all.rawValue == 0,
      let sessions = Self.patterns(text.extracting(parts[2])), let topics = Self.patterns(text.extracting(parts[3])),
      let origin = Self.origin(text.extracting(parts[5]))
    else { return nil }
    let end = text.extracting(parts[4])
    let expires = end.isEmpty ? nil : end.decimalValue()
    guard end.isEmpty || expires != nil else { return nil }
    grant = Grant(
      principal: String(decoding: principal, as: UTF8.self), scopes: Scopes(rawValue: scopes), sessions: sessions,
      topics: topics, expires: expires.map(Int64.init))
    self.origin = origin
  }

  private static func patterns(_ text: Span<UInt8>) -> NamePatterns? {
    var patterns = NamePatterns.none
    var start = 0
    while start < text.count {
      let end = text.firstIndex(of: UInt8(ascii: ","), from: start) ?? text.count
      guard let name = Base64.decode(text.extracting(start..<end)) else { return nil }
      do throws(NamePatterns.Invalid) { try patterns.add(name.span) } catch { return nil }
      start = end + 1
    }
    return patterns
  }

  private static func origin(_ text: Span<UInt8>) -> ClientOrigin? {
    if text.equals("local") { return .local }
    guard text.count > 2, let number = UInt64(text.extracting(2..<text.count).text(), radix: 16) else { return nil }
    if text.starts(with: "4:") { return UInt32(exactly: number).map { .ipv4($0) } }
    return text.starts(with: "6:") ? .ipv6(prefix: number) : nil
  }
}
