/// The parameters of permessage-deflate in one offer or response (RFC 7692 §7.1). Each parameter occurs at most once
/// and has a valid value.
struct DeflateParameters: Equatable {
  enum Window: Equatable {
    case bits(Int)
    /// `client_max_window_bits` without a value. Only valid in an offer.
    case any
  }

  enum Problem: Error, Equatable, CustomStringConvertible {
    case repeated(String)
    case unknown(String)
    case takesNoValue(String)
    case outOfRange(String)

    var description: String {
      switch self {
      case .repeated(let name): "parameter \(name) is repeated"
      case .unknown(let name): "permessage-deflate has no parameter \(name)"
      case .takesNoValue(let name): "parameter \(name) takes no value"
      case .outOfRange(let name): "parameter \(name) must be a number from 8 to 15"
      }
    }
  }

  var serverResets = false
  var clientResets = false
  var serverWindow: Window?
  var clientWindow: Window?

  init(_ parameters: [(name: String, value: String?)]) throws(Problem) {
    var seen: Set<String> = []
    for (name, value) in parameters {
      guard seen.insert(name).inserted else { throw .repeated(name) }
      switch name {
      case "server_no_context_takeover":
        guard value == nil else { throw .takesNoValue(name) }
        serverResets = true
      case "client_no_context_takeover":
        guard value == nil else { throw .takesNoValue(name) }
        clientResets = true
      case "server_max_window_bits":
        guard let value else { throw .outOfRange(name) }
        serverWindow = .bits(try Self.bits(value, name))
      case "client_max_window_bits":
        clientWindow = .any
        if let value { clientWindow = .bits(try Self.bits(value, name)) }
      default:
        throw .unknown(name)
      }
    }
  }

  /// §7.1.2: a decimal number without leading zeros, 8 to 15.
  private static func bits(_ value: String, _ name: String) throws(Problem) -> Int {
    guard let bits = Int(value), (8...15).contains(bits), value == String(bits) else { throw .outOfRange(name) }
    return bits
  }
}
