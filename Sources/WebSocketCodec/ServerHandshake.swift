import ByteStreams

/// The opening handshake of a server (RFC 6455 §4.2), for the built-in demo and for tests: the gateway itself is a client.
package enum ServerHandshake {
  /// Writes the 101 answer to a request with this `Sec-WebSocket-Key` and answers the compression agreed on. `extensions` is
  /// the request's `Sec-WebSocket-Extensions`.
  package static func accept(
    key: String, extensions: String?, subprotocol: String? = nil, into output: inout ByteQueue
  ) -> MessageCompression.Settings? {
    let agreed = extensions.flatMap(agree)
    output.append("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    output.append("Sec-WebSocket-Accept: \(ClientHandshake.accept(for: key))\r\n")
    if let subprotocol { output.append("Sec-WebSocket-Protocol: \(subprotocol)\r\n") }
    if let agreed { output.append("Sec-WebSocket-Extensions: \(agreed.answer)\r\n") }
    output.append("\r\n")
    return agreed?.settings
  }

  /// The first offer of permessage-deflate that can be met (RFC 7692 §5.1).
  private static func agree(_ value: String) -> (settings: MessageCompression.Settings, answer: String)? {
    guard let offers = ExtensionElement.parse(Array(value.utf8).span) else { return nil }
    offers: for offer in offers where offer.name == "permessage-deflate" {
      var settings = MessageCompression.Settings()
      settings.outboundWindowBits = 15
      settings.memoryLevel = 8
      var answer = "permessage-deflate"
      for (name, value) in offer.parameters {
        switch (name, value.flatMap(Int.init)) {
        case ("server_no_context_takeover", nil):
          settings.outboundResets = true
          answer += "; server_no_context_takeover"
        case ("client_no_context_takeover", nil):
          settings.inboundResets = true
          answer += "; client_no_context_takeover"
        case ("server_max_window_bits", .some(9...15)):
          settings.outboundWindowBits = Int(value ?? "") ?? 15
          answer += "; server_max_window_bits=\(settings.outboundWindowBits)"
        case ("client_max_window_bits", _):
          break
        default:
          continue offers
        }
      }
      return (settings, answer)
    }
    return nil
  }
}
