import ByteStreams
import Digests
import HTTPCodec

/// The opening handshake of a client (RFC 6455 §4.1): writes the request, judges the answer.
package struct ClientHandshake: ~Copyable {
  /// What to ask for.
  package struct Request: Sendable {
    /// Origin-form: path and query.
    package var target: String
    /// Host field: with the port where it is not the scheme's own.
    package var host: String
    package var subprotocols: [String] = []
    package var compression: CompressionOffer?
    /// Further fields; none of the handshake's own.
    package var fields: [(name: String, value: String)] = []

    package init(target: String, host: String) {
      self.target = target
      self.host = host
    }
  }

  /// What was agreed on.
  package struct Agreement: Hashable, Sendable {
    package let subprotocol: String?
    package let compression: MessageCompression.Settings?
  }

  /// An answer other than 101: its head, for the rules of redialling and for the report. Its body follows in the input.
  package struct Refusal: Sendable {
    package let status: Int
    package let reason: String
    package let fields: [(name: String, value: String)]

    /// The first field of this name, which must be lower case.
    package func field(_ name: String) -> String? { fields.first { $0.name.lowercased() == name }?.value }
  }

  package enum Result: Sendable {
    case accepted(Agreement)
    case refused(Refusal)
  }

  /// Appended to the key before hashing (§1.3).
  static let accessGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

  private let request: Request
  private let key: String
  private var decoder = HTTPResponseHeadDecoder()

  package init(_ request: Request, using generator: inout some RandomNumberGenerator) {
    self.request = request
    let nonce = (0..<16).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
    key = Base64.encode(nonce.span)
  }

  static func accept(for key: String) -> String {
    Base64.encode(Digest.sha1(Array((key + accessGUID).utf8).span).span)
  }

  package func write(into output: inout ByteQueue) {
    output.append("GET \(request.target) HTTP/1.1\r\nHost: \(request.host)\r\n")
    output.append(
      "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: \(key)\r\nSec-WebSocket-Version: 13\r\n")
    if !request.subprotocols.isEmpty {
      output.append("Sec-WebSocket-Protocol: \(request.subprotocols.joined(separator: ", "))\r\n")
    }
    if let offer = request.compression { output.append("Sec-WebSocket-Extensions: \(offer.fieldValue)\r\n") }
    for field in request.fields { output.append("\(field.name): \(field.value)\r\n") }
    output.append("\r\n")
  }

  /// Takes the answer's head from the front of `input`, and leaves what follows it: frames may come in the same segment.
  /// nil: more bytes, please. Interim answers (1xx other than 101) are passed over, as RFC 9110 §15.2 asks.
  package mutating func receive(_ input: inout ByteQueue) throws(HandshakeError) -> Result? {
    while true {
      let taken: Int
      do throws(HTTPProtocolError) {
        taken = try decoder.append(input.bytes)
      } catch {
        throw .notHTTP(error)
      }
      input.consume(taken)
      guard decoder.isComplete else { return nil }
      if decoder.status == .switchingProtocols { return .accepted(try judge()) }
      guard decoder.status.isInterim else { return .refused(refusal()) }
      decoder.begin()
    }
  }

  private func judge() throws(HandshakeError) -> Agreement {
    guard decoder.fields.list(.upgrade, contains: "websocket") else { throw .noUpgrade }
    guard decoder.fields.list(.connection, contains: "upgrade") else { throw .noConnectionUpgrade }
    let expected = Self.accept(for: key)
    guard let accept = decoder.fields.first(.secWebSocketAccept), accept.text() == expected,
      values(of: .secWebSocketAccept).count == 1
    else { throw .wrongAccept }
    return Agreement(subprotocol: try agreedSubprotocol(), compression: try agreedCompression())
  }

  private func values(of field: HTTPFieldName) -> [String] {
    var values: [String] = []
    var start = 0
    while let index = decoder.fields.index(of: field, from: start) {
      values.append(decoder.fields.value(at: index).text())
      start = index + 1
    }
    return values
  }

  private func agreedSubprotocol() throws(HandshakeError) -> String? {
    let answers = values(of: .secWebSocketProtocol)
    guard let answer = answers.first else { return nil }
    guard answers.count == 1, request.subprotocols.contains(answer) else {
      throw .badSubprotocol("'\(answers.joined(separator: ", "))' was not offered")
    }
    return answer
  }

  private func agreedCompression() throws(HandshakeError) -> MessageCompression.Settings? {
    let joined = values(of: .secWebSocketExtensions).joined(separator: ", ")
    guard let elements = ExtensionElement.parse(Array(joined.utf8).span) else {
      throw .badExtension("'\(joined)' does not follow the grammar")
    }
    guard let first = elements.first else { return nil }
    guard let offer = request.compression, first.name == "permessage-deflate" else {
      throw .badExtension("'\(first.name)' was not offered")
    }
    guard elements.count == 1 else { throw .badExtension("more than was offered") }
    return try offer.judge(first.parameters).get()
  }

  private func refusal() -> Refusal {
    var fields: [(name: String, value: String)] = []
    for index in 0..<decoder.fields.count {
      fields.append((decoder.fields.name(at: index).text(), decoder.fields.value(at: index).text()))
    }
    return Refusal(status: Int(decoder.status.rawValue), reason: decoder.reason.text(), fields: fields)
  }
}
