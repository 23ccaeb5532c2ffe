import ByteStreams
import Digests
import HTTPCodec

/// The opening handshake of a client (RFC 6455 §4.1): writes the request and validates the response. HTTPCodec's strict
/// parser reads the response head.
///
///     var handshake = ClientHandshake(request, using: &generator)
///     handshake.write(into: &output)
///     // whenever bytes arrive:
///     switch try handshake.receive(&input) {
///     case nil: … more bytes are needed
///     case .accepted(let agreement): … the rest of `input` is frames
///     case .refused(let refusal): … the rest of `input` is the beginning of its body: see RefusalBody
///     }
package struct ClientHandshake: ~Copyable {
  /// The parameters on which client and server have agreed.
  package struct Agreement: Hashable, Sendable {
    package let subprotocol: String?
    package let compression: MessageCompression.Settings?
  }

  package enum Result: Sendable {
    case accepted(Agreement)
    case refused(HTTPRefusal)
  }

  /// The text that is appended to the key before the hash is computed (§1.3).
  static let accessGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

  private let request: Request
  private let key: String
  private var decoder: HTTPResponseHeadDecoder
  private var interimResponses = 0

  /// Maximum number of interim responses that are skipped. Servers send one or two. Python's urllib3 and Go's net/http
  /// (5) have a low limit, too. Without a limit, a server could send interim responses endlessly, and the handshake
  /// would never fail.
  private static let interimLimit = 8

  /// `request.problem` must be nil. `limits` applies to the response head.
  package init(
    _ request: Request, limits: HTTPLimits = HTTPLimits(), using generator: inout some RandomNumberGenerator
  ) {
    precondition(request.problem == nil, "the request is not valid: \(request.problem ?? "")")
    self.request = request
    decoder = HTTPResponseHeadDecoder(limits: limits)
    // §4.1: 16 random bytes, base64-encoded; new for each connection.
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

  /// Takes the response head from the front of `input` and leaves the rest, since frames may follow in the same
  /// segment. Returns nil if more bytes are needed. Interim responses (1xx other than 101) are skipped, as RFC 9110
  /// §15.2 requires.
  package mutating func receive(_ input: inout ByteQueue) throws(HandshakeError) -> Result? {
    while true {
      do throws(HTTPProtocolError) {
        guard try decoder.take(from: &input) else { return nil }
      } catch {
        throw .notHTTP(error)
      }
      if decoder.status == .switchingProtocols { return .accepted(try validate()) }
      guard decoder.status.isInterim else { return .refused(HTTPRefusal(decoder)) }
      interimResponses += 1
      guard interimResponses <= Self.interimLimit else { throw .tooManyInterimResponses(limit: Self.interimLimit) }
      decoder.begin()
    }
  }

  /// Whether no byte of a response has arrived yet.
  package var hasReceivedNothing: Bool { interimResponses == 0 && decoder.head.isEmpty }

  /// The head of the response; nil if it is not complete. Also valid after an error.
  package var response: HTTPRefusal? { decoder.isComplete ? HTTPRefusal(decoder) : nil }

  /// Validates a 101 response by the rules of §4.1, in their order.
  private func validate() throws(HandshakeError) -> Agreement {
    guard !decoder.isHTTP10 else { throw .notHTTP11 }
    guard elements(of: .upgrade) == ["websocket"] else { throw .noUpgrade }
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

  /// The elements of a list-valued field in lower case.
  private func elements(of field: HTTPFieldName) -> [String] {
    var elements: [String] = []
    decoder.fields.forEachElement(of: field) { elements.append($0.text().lowercased()) }
    return elements
  }

  private func agreedSubprotocol() throws(HandshakeError) -> String? {
    let values = values(of: .secWebSocketProtocol)
    guard let value = values.first else { return nil }
    guard values.count == 1, request.subprotocols.contains(value) else {
      throw .badSubprotocol("'\(values.joined(separator: ", "))' was not offered")
    }
    return value
  }

  private func agreedCompression() throws(HandshakeError) -> MessageCompression.Settings? {
    let values = values(of: .secWebSocketExtensions)
    // §11.3.2: the field MUST NOT appear more than once in a response.
    guard values.count <= 1 else { throw .badExtension("the field is repeated") }
    let joined = values.first ?? ""
    guard let elements = ExtensionElement.parse(Array(joined.utf8).span) else {
      throw .badExtension("'\(joined)' does not match the grammar of the field")
    }
    guard let first = elements.first else { return nil }
    guard let offer = request.compression, first.name == "permessage-deflate" else {
      throw .badExtension("'\(first.name)' was not offered")
    }
    guard elements.count == 1 else { throw .badExtension("it accepts more extensions than were offered") }
    return try offer.validate(first.parameters)
  }
}
