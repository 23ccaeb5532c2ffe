/// A client's offer of permessage-deflate (RFC 7692 §7.1), and the validation of the response to it.
package struct CompressionOffer: Hashable, Sendable {
  /// Window bits for sending, 9...15. Sent as `client_max_window_bits`, so that the server can use a smaller window to
  /// decompress.
  package var windowBits = 12
  /// Requests that the server sends with a window of at most this many bits, 8...15. A server that cannot do so
  /// declines the offer.
  package var serverWindowBits: Int?
  /// Requests that the server resets its compression history after each message, so that decompression needs no memory
  /// between messages.
  package var serverResets = false
  /// Offers to reset the client's compression history after each message, so that the server need not keep a copy of
  /// the history. The history is reset only if the response contains this parameter.
  package var clientResets = false
  /// See `MessageCompression.Settings`.
  package var level = 6
  package var memoryLevel = 5
  package var threshold = 128

  package init() {}

  /// The field value. `client_max_window_bits` without a value says that the response may contain the parameter.
  var fieldValue: String {
    var value = "permessage-deflate"
    if serverResets { value += "; server_no_context_takeover" }
    if clientResets { value += "; client_no_context_takeover" }
    if let serverWindowBits { value += "; server_max_window_bits=\(serverWindowBits)" }
    return value + (windowBits == 15 ? "; client_max_window_bits" : "; client_max_window_bits=\(windowBits)")
  }

  /// Validates the parameters of the server's response by §7.1.
  func validate(
    _ parameters: [(name: String, value: String?)]
  ) throws(HandshakeError) -> MessageCompression.Settings {
    let response: DeflateParameters
    do throws(DeflateParameters.Problem) {
      response = try DeflateParameters(parameters)
    } catch {
      throw .badExtension(error.description)
    }
    // §7.1.1.1: a server accepts an offer with this parameter by including the parameter in the response.
    guard response.serverResets || !serverResets else {
      throw .badExtension("server_no_context_takeover was requested and not granted")
    }
    // §7.1.2.1: a server accepts an offer with this parameter by including the parameter in the response, with the same
    // or a smaller value.
    if let requested = serverWindowBits {
      guard case .bits(let granted)? = response.serverWindow, granted <= requested else {
        throw .badExtension("server_max_window_bits=\(requested) was requested and not granted")
      }
    }
    var settings = MessageCompression.Settings()
    settings.outboundResets = response.clientResets
    settings.inboundResets = response.serverResets
    settings.inboundWindowBits = try Self.bits(response.serverWindow, "server_max_window_bits") ?? 15
    // §7.1.2.2: a value above the offered value has no effect but does no harm, since the offered value is used.
    settings.outboundWindowBits = min(try Self.bits(response.clientWindow, "client_max_window_bits") ?? 15, windowBits)
    settings.level = level
    settings.memoryLevel = memoryLevel
    settings.threshold = threshold
    return settings
  }

  /// In a response, a window parameter must have a value.
  private static func bits(_ window: DeflateParameters.Window?, _ name: String) throws(HandshakeError) -> Int? {
    switch window {
    case nil: nil
    case .bits(let bits): bits
    case .any: throw .badExtension("parameter \(name) must be a number from 8 to 15")
    }
  }
}
