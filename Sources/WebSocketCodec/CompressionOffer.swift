/// What a client offers as permessage-deflate (RFC 7692 §7.1), and what it makes of the answer.
package struct CompressionOffer: Hashable, Sendable {
  /// Window for what we send, 9...15: told as `client_max_window_bits`, so that the server may ask for a smaller one.
  package var windowBits = 12
  package var level = 6
  package var memoryLevel = 5
  package var threshold = 128

  package init() {}

  /// The field value. A bare `client_max_window_bits` says that we understand an answer with it.
  var fieldValue: String {
    windowBits == 15
      ? "permessage-deflate; client_max_window_bits"
      : "permessage-deflate; client_max_window_bits=\(windowBits)"
  }

  /// Judges the server's answer by §7.1; the reason where it cannot be accepted.
  func judge(_ parameters: [(name: String, value: String?)]) -> Result<MessageCompression.Settings, HandshakeError> {
    var settings = MessageCompression.Settings()
    settings.outboundWindowBits = windowBits
    settings.level = level
    settings.memoryLevel = memoryLevel
    settings.threshold = threshold
    var seen: Set<String> = []
    for (name, value) in parameters {
      guard seen.insert(name).inserted else { return .failure(.badExtension("parameter \(name) stands there twice")) }
      switch name {
      case "server_no_context_takeover", "client_no_context_takeover":
        guard value == nil else { return .failure(.badExtension("parameter \(name) takes no value")) }
        if name.hasPrefix("server") { settings.inboundResets = true } else { settings.outboundResets = true }
      case "server_max_window_bits", "client_max_window_bits":
        // §7.1.2: a decimal number without leading zeros, 8 to 15.
        guard let value, let bits = Int(value), (8...15).contains(bits), value == String(bits) else {
          return .failure(.badExtension("parameter \(name) must be a number from 8 to 15"))
        }
        if name.hasPrefix("server") {
          settings.inboundWindowBits = bits
        } else {
          settings.outboundWindowBits = min(bits, windowBits)
        }
      default:
        return .failure(.badExtension("permessage-deflate has no parameter \(name)"))
      }
    }
    return .success(settings)
  }
}
