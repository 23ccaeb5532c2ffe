import ByteStreams
import HTTPCodec
import Host
import Reactor

struct GatewayRequest {
  var method = "GET"
  /// Path and query.
  let path: String
  var fields: [(name: String, value: String)] = []
  var body: [UInt8]?
}

/// A request that was sent, and the part of its response that was received.
final class GatewayExchange {
  let connection: GatewayConnection
  private var decoder = HTTPResponseHeadDecoder()
  private(set) var hasHead = false
  /// The header fields, with names in lower case.
  private var fields: [(name: String, value: String)] = []
  /// The bytes after the head that are not consumed yet.
  var input = ByteQueue()
  private var received = 0

  init(_ connection: GatewayConnection) { self.connection = connection }

  var status: Int { Int(decoder.status.rawValue) }
  /// Whether the whole response was received.
  var isComplete: Bool { hasHead && (connection.isAtEnd || length.map { received >= $0 } ?? false) }
  private var length: Int? { field("Content-Length").flatMap { Int($0) } }

  func field(_ name: String) -> String? {
    let name = name.lowercased()
    return fields.first { $0.name == name }?.value
  }

  private static func fields(of decoder: borrowing HTTPResponseHeadDecoder) -> [(name: String, value: String)] {
    (0..<decoder.fields.count).map { index in
      (decoder.fields.name(at: index).text().lowercased(), decoder.fields.value(at: index).text())
    }
  }

  /// Receives the bytes that have arrived. Blocks if the connection is not readable.
  func receive() throws(ConnectionFailure) {
    if connection.isAtEnd { return }
    let before = input.count
    _ = try connection.receive(into: &input)
    received += input.count - before
    if !hasHead { try readHead() }
    guard connection.isAtEnd, hasHead else { return }
    guard let length, received < length else { return }
    throw ConnectionFailure("the response was cut off: it has \(received) of \(length) bytes")
  }

  private func readHead() throws(ConnectionFailure) {
    do throws(HTTPProtocolError) {
      while try decoder.take(from: &input) {
        // Interim responses precede the final response.
        guard decoder.status.rawValue < 200 else {
          hasHead = true
          fields = Self.fields(of: decoder)
          received = input.count
          break
        }
        decoder.begin()
      }
    } catch {
      throw ConnectionFailure("the response is not valid HTTP (\(error)): is this the address of a gateway?")
    }
    guard hasHead else {
      if connection.isAtEnd { throw ConnectionFailure("the connection was closed") }
      return
    }
    guard field("Transfer-Encoding") == nil else {
      throw ConnectionFailure("the response to HTTP/1.0 is chunked: a proxy in between is at fault")
    }
  }
}

/// A complete response.
struct GatewayResponse {
  let status: Int
  let body: [UInt8]
  let retryAfter: TimeSpan?
  let isJSON: Bool
  private let isPlainText: Bool

  init(_ exchange: GatewayExchange) {
    status = exchange.status
    body = [UInt8](copying: exchange.input.bytes)
    retryAfter = exchange.retryAfter
    let type = exchange.field("Content-Type")?.lowercased() ?? ""
    isJSON = type.hasPrefix("application/json")
    isPlainText = type.hasPrefix("text/plain")
  }

  /// Longer lines are not shown, since they are not meant for a person at a terminal.
  private static let lineBytes = 256

  /// The first line of a body in plain text; nil if there is none.
  var line: String? {
    guard isPlainText, let line = body.split(whereSeparator: { $0 == 0x0A || $0 == 0x0D }).first,
      line.count <= Self.lineBytes
    else { return nil }
    return String(decoding: line, as: UTF8.self)
  }

  /// The JSON object in the body.
  var document: Document? { Document(body.last == UInt8(ascii: "\n") ? Array(body.dropLast()) : body) }

  var isSuccess: Bool { (200..<300).contains(status) }
}

extension GatewayExchange {
  /// The time after which the request should be repeated, from one second to an hour.
  var retryAfter: TimeSpan? {
    field("Retry-After").flatMap { Int64($0) }.map { TimeSpan.seconds(min(max(1, $0), 3600)) }
  }
}
