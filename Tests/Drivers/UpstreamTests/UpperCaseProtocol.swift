import ByteStreams
import UpstreamProtocol

/// A third protocol. It shows that a new protocol needs only its own file, its settings, and a line in
/// `UpstreamConventions.declarations`.
///
/// Each side greets the other with `HI`. The server's greeting contains the number of times that the gateway must send
/// its ping, `?`, and get it back. `BYE` ends the connection. The protocol sends the messages of clients in upper case.
/// A message of the server may contain several messages, separated by commas.
struct UpperCaseProtocol: UpstreamProtocol, ProtocolDeclaration, Equatable {
  var name: String { "Upper Case" }
  var section: String { "upstream.uppercase" }
  var steps: [ProtocolStep] { [ProtocolStep(name: "the greeting", missing: "the server did not return the greeting")] }
  var capabilities: ProtocolCapabilities {
    [.examination, .severalMeanings, .announcedHeartbeats, .messagePings, .encoding]
  }

  /// The pings that the server has not returned. An entry is nil if the ping is a heartbeat.
  private var pings: [UInt64?] = []
  /// The remaining events of a message, which are not reported yet.
  private var rest: [ProtocolEvent] = []
  private(set) var connection: UInt64 = 0

  func makeProtocol(_ conventions: UpstreamConventions, messageBytes: Int) -> any UpstreamProtocol { self }

  func hint(status: Int, body: String) -> String { ": is this a server of Upper Case?" }

  mutating func begin(connection: UInt64, _ secrets: TemplateValues) { self.connection = connection }

  mutating func beginSetup(step: Int) -> [ProtocolFrame] { [ProtocolFrame(ByteString(Array("HI".utf8)))] }

  mutating func receive(_ payload: Span<UInt8>, kind: MessageKind, _ memory: inout ProtocolMemory) -> ProtocolEvent {
    let words = payload.text().split(separator: ",")
    guard words.count > 1 else { return meaning(of: payload.text()) }
    rest = words.dropFirst().map { meaning(of: String($0)) }
    return meaning(of: String(words[0]))
  }

  mutating func next(_ memory: inout ProtocolMemory) -> ProtocolEvent? { rest.isEmpty ? nil : rest.removeFirst() }

  private mutating func meaning(of word: String) -> ProtocolEvent {
    switch word {
    case "HI":
      rest = [.setupResponse]
      var news = ProtocolNews()
      news.heartbeats = ProtocolNews.Heartbeats(interval: .milliseconds(20), timeout: .seconds(30))
      return .news(news)
    case "?": return pings.isEmpty ? .ignored : .pong(pings.removeFirst())
    case "BYE": return .ended("the server said BYE")
    case "!": return .violation("a server does not shout")
    default: return .push
    }
  }

  mutating func ping(_ counter: UInt64?) -> StaticString? {
    pings.append(counter)
    return "?"
  }

  mutating func encode(
    _ payload: Span<UInt8>, kind: MessageKind, isCall: Bool, _ write: (MessageParts, MessageKind) -> Void
  ) -> EncodingResult {
    write(MessageParts(Array(payload.text().uppercased().utf8).span), kind)
    return .written
  }
}
