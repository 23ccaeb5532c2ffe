import ByteStreams
import Calls
import JSONCodec

/// The locations of the id that relates requests and replies of an upstream, and which messages are replies.
package struct Correlation: Hashable, Sendable {
  /// The condition under which a message with the id of a request is its reply.
  package enum ReplyShape: Hashable, Sendable {
    case any
    case matching(Matcher)
    /// JSON-RPC 2.0 §5: an object with `result` or `error`. An object with `method` is a request of the upstream.
    case jsonRPC
  }

  /// The ids that replace the ids of clients.
  package enum IDs: String, CaseIterable, Sendable {
    /// A random id of the type of the client's id.
    case keepType = "keep-type"
    /// A random string.
    case string
    /// 1, 2, 3 … on each connection.
    case sequence
  }

  package let request: JSONPointer
  package let reply: JSONPointer
  package let shape: ReplyShape
  package let ids: IDs

  package init(request: JSONPointer, reply: JSONPointer, shape: ReplyShape, ids: IDs = .keepType) {
    self.request = request
    self.reply = reply
    self.shape = shape
    self.ids = ids
  }

  package static let jsonRPC = jsonRPC(.keepType)

  package static func jsonRPC(_ ids: IDs) -> Correlation {
    Correlation(request: pointer("/id"), reply: pointer("/id"), shape: .jsonRPC, ids: ids)
  }

  private static let result = pointer("/result")
  private static let error = pointer("/error")
  private static let method = pointer("/method")

  private static func pointer(_ text: String) -> JSONPointer {
    guard let pointer = JSONPointer(text) else { preconditionFailure("'\(text)' is a JSON pointer") }
    return pointer
  }

  // MARK: Requests

  /// Why a request has no id that a reply could repeat.
  package enum RequestError: Error, Equatable {
    /// There is no value at the pointer, or the value is null: the upstream would not reply.
    case absent
    /// The request is an array with objects, which may have ids of their own.
    case batch
    /// The id is neither a string nor a number.
    case neitherStringNorNumber
    /// A name of the pointer is repeated in its object, and the upstream may read another id than the gateway.
    case repeated
  }

  /// Returns the range of the id in `request`, which must be valid JSON. It is a string or a number.
  package func identifier(ofRequest request: Span<UInt8>) throws(RequestError) -> Range<Int> {
    guard let range = self.request.find(in: request) else { throw Self.isBatch(request) ? .batch : .absent }
    guard !self.request.isAmbiguous(in: request) else { throw .repeated }
    switch request[range.lowerBound] {
    case UInt8(ascii: "\""), UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return range
    case UInt8(ascii: "n"): throw .absent
    default: throw .neitherStringNorNumber
    }
  }

  /// The id of the gateway that replaces the client's id `token`.
  package func callID(for token: Span<UInt8>, random: UInt128) -> CallID {
    CallID(ids == .string ? .string : CallID.form(of: token), random: random)
  }

  private static func isBatch(_ text: Span<UInt8>) -> Bool {
    for index in text.indices where !(text[index] <= 0x20) { return text[index] == UInt8(ascii: "[") }
    return false
  }

  // MARK: Replies

  /// Returns the range of the id in a message of the upstream; nil if it has no id.
  package func identifier(ofReply message: Span<UInt8>) -> Range<Int>? { reply.find(in: message) }

  /// Whether a message with the id of a request is its reply.
  package func isReply(_ message: Span<UInt8>) -> Bool {
    guard !reply.isAmbiguous(in: message) else { return false }
    return switch shape {
    case .any: true
    case .matching(let matcher): matcher.matches(message)
    case .jsonRPC:
      Self.method.find(in: message) == nil
        && (Self.result.find(in: message) != nil || Self.error.find(in: message) != nil)
    }
  }
}
