import ByteStreams
import JSONCodec

/// The meaning of a server's HTTP response to the opening request, if it is not an upgrade.
package enum EngineIORefusal: Equatable, Sendable {
  /// There is no WebSocket transport at this server or path.
  case noWebSocket
  /// The server speaks another version than configured.
  case wrongVersion
  /// Another reason: `allowRequest` of the official server, or an origin that is not accepted.
  case refused

  /// Reads the content of a response with status 400. The official server sends JSON with a code; python-engineio sends
  /// a JSON string.
  package init(content: Span<UInt8>) {
    let text = Self.text(content)
    if Self.code(content) == 0 || Self.starts(text, "invalid transport") {
      self = .noWebSocket
    } else if Self.code(content) == 5 || Self.contains(text, "unsupported version")
      || Self.contains(text, "unsupported protocol version")
    {
      self = .wrongVersion
    } else {
      self = .refused
    }
  }

  /// The beginning of the HTTP response that the official server sends in place of frames when it refuses a request
  /// after it has accepted the upgrade.
  package static let prefixAfterUpgrade = Array("HTTP/1.1 400".utf8)

  /// Whether the first bytes after an upgrade are an HTTP response; nil if there are not enough bytes yet.
  package static func isResponse(_ bytes: Span<UInt8>) -> Bool? {
    let count = min(bytes.count, prefixAfterUpgrade.count)
    for index in 0..<count where bytes[index] != prefixAfterUpgrade[index] { return false }
    return bytes.count >= prefixAfterUpgrade.count ? true : nil
  }

  /// Advice for the operator, for the session's failure.
  package func advice(_ version: EngineIOVersion) -> String {
    let other: EngineIOVersion = version == .four ? .three : .four
    return switch self {
    case .noWebSocket:
      "the server has no WebSocket transport at this path; enable it there, or correct the path of 'upstream.url'"
    case .wrongVersion:
      "the server does not speak Engine.IO \(version.rawValue); set 'upstream.socketio.version' to \(other.rawValue)"
    case .refused: "the server refused the request"
    }
  }

  private static func code(_ content: Span<UInt8>) -> Int? {
    guard JSONValidator.isValid(content), let object = JSONObject(content) else { return nil }
    let member = object.members.last { JSONString.equals(content.extracting($0.name), Array("code".utf8)) }
    return member.flatMap { content.extracting($0.value).decimalValue() }
  }

  /// The sentence in the content: `message` of an object, a string, or the content itself.
  package static func text(_ content: Span<UInt8>) -> [UInt8] {
    guard JSONValidator.isValid(content) else { return [UInt8](copying: content) }
    if let object = JSONObject(content) {
      let member = object.members.last { JSONString.equals(content.extracting($0.name), Array("message".utf8)) }
      return member.flatMap { JSONString.content(of: content.extracting($0.value)) } ?? [UInt8](copying: content)
    }
    return JSONString.content(of: content) ?? [UInt8](copying: content)
  }

  private static func starts(_ text: [UInt8], _ prefix: String) -> Bool {
    text.lazy.map(ASCII.lowercased).starts(with: prefix.utf8)
  }

  private static func contains(_ text: [UInt8], _ part: String) -> Bool {
    String(decoding: text.prefix(SocketIOLimits.refusalBytes).map(ASCII.lowercased), as: UTF8.self).contains(part)
  }
}
