import ByteStreams

extension ClientHandshake {
  /// The contents of the opening request.
  package struct Request: Sendable {
    /// The path and query (origin-form).
    package var target: String
    /// The value of the Host field, with the port unless it is the scheme's default.
    package var host: String
    package var subprotocols: [String] = []
    package var compression: CompressionOffer?
    /// Additional fields: `Origin`, `Cookie`, `Authorization`, `User-Agent`, …. The handshake adds its own fields.
    package var fields: [(name: String, value: String)] = []

    package init(target: String, host: String) {
      self.target = target
      self.host = host
    }

    /// Why this is not a valid request, as a sentence; nil if it is valid. The values come from the configuration, the
    /// environment and files, and a line end in such a value would inject fields into the request.
    package var problem: String? {
      guard target.utf8.first == UInt8(ascii: "/"), target.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x23 })
      else { return "the target must start with '/' and contain only visible ASCII; percent-encode other characters" }
      guard !host.isEmpty, host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x2F && $0 != 0x40 }) else {
        return "the host must be a name or an address with an optional port"
      }
      for (index, name) in subprotocols.enumerated() {
        guard Self.isToken(name) else { return "a subprotocol must be a token: letters, digits and !#$%&'*+-.^_`|~" }
        guard !subprotocols[..<index].contains(name) else { return "the subprotocol \(name) is repeated" }
      }
      for (name, value) in fields {
        guard Self.isToken(name) else { return "a field name must be a token: letters, digits and !#$%&'*+-.^_`|~" }
        guard !Self.ownFields.contains(name.lowercased()) else {
          return "the field \(name) is set by the handshake itself; remove it"
        }
        guard value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }) else {
          return "the value of the field \(name) contains a line end or another control character"
        }
      }
      return nil
    }

    private static let ownFields: Set<String> = [
      "host", "upgrade", "connection", "content-length", "transfer-encoding", "sec-websocket-key",
      "sec-websocket-version", "sec-websocket-protocol", "sec-websocket-extensions", "sec-websocket-accept",
    ]

    private static func isToken(_ text: String) -> Bool { !text.isEmpty && text.utf8.allSatisfy(ASCII.isToken) }
  }
}
