import ByteStreams
import HTTPCodec

/// The opening handshake of a server (RFC 6455 §4.2), for the built-in demo and for tests. The gateway itself is a
/// client.
package enum ServerHandshake {
  /// Why a request is rejected. `status` is 400, 405, or 426, which is sent with `Sec-WebSocket-Version: 13`.
  package enum Refusal: Error, Equatable, Sendable {
    case notGet
    case noUpgrade
    case badVersion
    case badKey

    package var status: HTTPStatus {
      switch self {
      case .notGet: .methodNotAllowed
      case .noUpgrade, .badVersion: HTTPStatus(rawValue: 426)
      case .badKey: .badRequest
      }
    }
  }

  /// Validates a request by §4.2.1 and returns its `Sec-WebSocket-Key`.
  package static func validate(_ head: borrowing HTTPRequestHead) throws(Refusal) -> String {
    guard head.method == .get, !head.isHTTP10 else { throw .notGet }
    guard head.fields.list(.upgrade, contains: "websocket"), head.fields.list(.connection, contains: "upgrade") else {
      throw .noUpgrade
    }
    guard let version = head.fields.first("sec-websocket-version"), version.equals("13") else { throw .badVersion }
    guard let key = head.fields.first("sec-websocket-key"), Base64.isEncoding(key, ofBytes: 16) else { throw .badKey }
    return key.text()
  }

  /// Writes the 101 response to a request with this `Sec-WebSocket-Key` and returns the agreed compression, if any.
  /// `extensions` is the request's `Sec-WebSocket-Extensions`.
  package static func accept(
    key: String, extensions: String?, subprotocol: String? = nil, into output: inout ByteQueue
  ) -> MessageCompression.Settings? {
    let agreed = extensions.flatMap(agree)
    output.append("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    output.append("Sec-WebSocket-Accept: \(ClientHandshake.accept(for: key))\r\n")
    if let subprotocol { output.append("Sec-WebSocket-Protocol: \(subprotocol)\r\n") }
    if let agreed { output.append("Sec-WebSocket-Extensions: \(agreed.response)\r\n") }
    output.append("\r\n")
    return agreed?.settings
  }

  /// The first offer of permessage-deflate that the server can accept (RFC 7692 §5.1).
  private static func agree(_ value: String) -> (settings: MessageCompression.Settings, response: String)? {
    guard let offers = ExtensionElement.parse(Array(value.utf8).span) else { return nil }
    for offer in offers where offer.name == "permessage-deflate" {
      // An offer that is invalid or cannot be accepted is declined. A later offer may be acceptable.
      guard let requested = try? DeflateParameters(offer.parameters), requested.serverWindow != .bits(8) else {
        continue
      }
      var settings = MessageCompression.Settings()
      settings.outboundWindowBits = 15
      settings.memoryLevel = 8
      var response = "permessage-deflate"
      if requested.serverResets {
        settings.outboundResets = true
        response += "; server_no_context_takeover"
      }
      if requested.clientResets {
        settings.inboundResets = true
        response += "; client_no_context_takeover"
      }
      if case .bits(let bits)? = requested.serverWindow {
        settings.outboundWindowBits = bits
        response += "; server_max_window_bits=\(bits)"
      }
      if case .bits(let bits)? = requested.clientWindow {
        settings.inboundWindowBits = bits
        response += "; client_max_window_bits=\(bits)"
      }
      return (settings, response)
    }
    return nil
  }
}
