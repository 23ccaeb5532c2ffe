/// What a client offers as permessage-deflate (RFC 7692 §7.1), and what it makes of the answer.
package struct CompressionOffer: Hashable, Sendable {
  /// Window for what we send, 9...15: told as `client_max_window_bits`, so that the server may keep a smaller one itself.
  package var windowBits = 12
  /// Asks the server to send with a window of at most this many bits, 8...15. A server that cannot do so accepts nothing.
  package var serverWindowBits: Int?
  /// Asks the server to forget its history after each message: inflating then needs no memory in between.
  package var serverResets = false
  /// Says that we may forget ours; a server then needs to keep none. We do it only where the answer asks for it.
  package var clientResets = false
  package var level = 6
  package var memoryLevel = 5
  package var threshold = 128

  package init() {}

  /// The field value. A bare `client_max_window_bits` says that we understand an answer with it.
  var fieldValue: String {
    var value = "permessage-deflate"
    if serverResets { value += "; server_no_context_takeover" }
    if clientResets { value += "; client_no_context_takeover" }
    if let serverWindowBits { value += "; server_max_window_bits=\(serverWindowBits)" }
    return value + (windowBits == 15 ? "; client_max_window_bits" : "; client_max_window_bits=\(windowBits)")
  }

  /// Judges the server's answer by §7.1.
  func judge(
    _ parameters: [(name: String, value: String?)]
  ) throws(HandshakeError) -> MessageCompression.Settings {
    let answer: DeflateParameters
    do throws(DeflateParameters.Problem) {
      answer = try DeflateParameters(parameters)
    } catch {
      throw .badExtension(error.description)
    }
    // §7.1.1.1: accepting an offer with this parameter is to answer with it.
    guard answer.serverResets || !serverResets else {
      throw .badExtension("server_no_context_takeover was asked for and not granted")
    }
    // §7.1.2.1: likewise, with the same or a smaller value.
    if let asked = serverWindowBits {
      guard case .bits(let granted)? = answer.serverWindow, granted <= asked else {
        throw .badExtension("server_max_window_bits=\(asked) was asked for and not granted")
      }
    }
    var settings = MessageCompression.Settings()
    settings.outboundResets = answer.clientResets
    settings.inboundResets = answer.serverResets
    settings.inboundWindowBits = try Self.bits(answer.serverWindow, "server_max_window_bits") ?? 15
    // §7.1.2.2: a value above the one we offered is pointless and harmless, since we go on with our own.
    settings.outboundWindowBits = min(try Self.bits(answer.clientWindow, "client_max_window_bits") ?? 15, windowBits)
    settings.level = level
    settings.memoryLevel = memoryLevel
    settings.threshold = threshold
    return settings
  }

  /// In an answer a window must have its number.
  private static func bits(_ window: DeflateParameters.Window?, _ name: String) throws(HandshakeError) -> Int? {
    switch window {
    case nil: nil
    case .bits(let bits): bits
    case .any: throw .badExtension("parameter \(name) must be a number from 8 to 15")
    }
  }
}
