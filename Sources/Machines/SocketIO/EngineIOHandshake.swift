import ByteStreams
import JSONCodec

/// The announcements in Engine.IO's open packet.
package struct EngineIOHandshake: Equatable, Sendable {
  package let sessionID: [UInt8]
  package let pingInterval: TimeSpan
  package let pingTimeout: TimeSpan
  /// Maximum size of a message that the server accepts, in bytes; nil if not announced.
  package let maximumPayload: Int?

  /// Parses the content of an open packet.
  init(_ text: Span<UInt8>) throws(SocketIOViolation) {
    guard JSONValidator.isValid(text), let object = JSONObject(text) else {
      throw .invalidHandshake("it is not a JSON object")
    }
    var values: [String: Range<Int>] = [:]
    for member in object.members {
      for name in ["sid", "pingInterval", "pingTimeout", "maxPayload"]
      where JSONString.equals(text.extracting(member.name), Array(name.utf8)) { values[name] = member.value }
    }
    guard let sid = values["sid"].flatMap({ JSONString.content(of: text.extracting($0)) }), !sid.isEmpty,
      sid.count <= SocketIOLimits.identifierBytes
    else { throw .invalidHandshake("it has no 'sid'") }
    sessionID = sid
    pingInterval = try Self.span(values["pingInterval"], "pingInterval", text)
    pingTimeout = try Self.span(values["pingTimeout"], "pingTimeout", text)
    maximumPayload = values["maxPayload"].flatMap { Self.whole(text.extracting($0)) }
  }

  private static func span(
    _ range: Range<Int>?, _ name: String, _ text: Span<UInt8>
  ) throws(SocketIOViolation) -> TimeSpan {
    guard let range, let milliseconds = whole(text.extracting(range)) else {
      throw .invalidHandshake("'\(name)' is not a number of milliseconds")
    }
    let span = TimeSpan.milliseconds(Int64(milliseconds))
    guard SocketIOLimits.heartbeat.contains(span) else {
      throw .invalidHandshake("'\(name)' is \(milliseconds) ms; it must be from 100 ms to 10 minutes")
    }
    return span
  }

  /// A number without its fraction; nil if the token is not a number, is negative, or has an exponent.
  private static func whole(_ token: Span<UInt8>) -> Int? {
    let end = token.firstIndex(of: UInt8(ascii: ".")) ?? token.count
    for index in end..<token.count where index > end && !ASCII.isDigit(token[index]) { return nil }
    return token.extracting(first: end).decimalValue()
  }
}

/// Which side sends Engine.IO's heartbeats, and when the connection counts as dead.
package enum EngineIOHeartbeat: Equatable, Sendable {
  /// The server sends a ping at least this often (version 4).
  case fromServer(within: TimeSpan)
  /// The client sends a ping this often, and the pong must arrive in time (version 3).
  case fromClient(interval: TimeSpan, timeout: TimeSpan)

  package init(_ handshake: EngineIOHandshake, _ version: EngineIOVersion) {
    switch version {
    case .four: self = .fromServer(within: handshake.pingInterval + handshake.pingTimeout)
    // The interval is a tenth shorter than announced, since the loop may be late. The server expects a ping within
    // interval + timeout.
    case .three: self = .fromClient(interval: handshake.pingInterval * 9 / 10, timeout: handshake.pingTimeout)
    }
  }
}
