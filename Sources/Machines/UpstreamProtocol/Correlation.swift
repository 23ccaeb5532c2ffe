import ByteStreams
import Calls
import JSONCodec

/// Relates the requests and replies of an upstream: the locations of their ids, and the shape of a reply.
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
    /// A random id of the same type as the client's id.
    case keepType = "keep-type"
    /// A random string.
    case string
    /// 1, 2, 3 … on each connection.
    case sequence
  }

  /// One form of replies.
  package struct Reply: Hashable, Sendable {
    package let pointer: JSONPointer
    package let shape: ReplyShape

    package init(_ pointer: JSONPointer, _ shape: ReplyShape) {
      self.pointer = pointer
      self.shape = shape
    }
  }

  package let request: JSONPointer
  package let replies: [Reply]
  /// Matches messages that have the id of a call but only acknowledge the request. The reply to the call follows such a
  /// message.
  package let ignore: Matcher?
  package let ids: IDs

  package init(request: JSONPointer, replies: [Reply], ignore: Matcher? = nil, ids: IDs = .keepType) {
    self.request = request
    self.replies = replies
    self.ignore = ignore
    self.ids = ids
  }

  package init(request: JSONPointer, reply: JSONPointer, shape: ReplyShape, ids: IDs = .keepType) {
    self.init(request: request, replies: [Reply(reply, shape)], ids: ids)
  }

  package static let jsonRPC = jsonRPC(.keepType)

  package static func jsonRPC(_ ids: IDs, ignore: Matcher? = nil) -> Correlation {
    Correlation(request: pointer("/id"), replies: [Reply(pointer("/id"), .jsonRPC)], ignore: ignore, ids: ids)
  }

  /// Whether the replies have the form of JSON-RPC 2.0.
  package var isJSONRPC: Bool { replies.first?.shape == .jsonRPC }

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
    /// The request is an array. The objects in it may have ids of their own.
    case batch
    /// The id is neither a string nor a number.
    case neitherStringNorNumber
    /// A name of the pointer is repeated in its object, so the upstream may read another id than the gateway.
    case repeated
  }

  /// Returns the range of the id in `request`, which must be valid JSON. The id is a string or a number.
  package func identifier(ofRequest request: Span<UInt8>) throws(RequestError) -> Range<Int> {
    guard let range = self.request.find(in: request) else { throw Self.isBatch(request) ? .batch : .absent }
    guard !self.request.isAmbiguous(in: request) else { throw .repeated }
    switch request[range.lowerBound] {
    case UInt8(ascii: "\""), UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return range
    case UInt8(ascii: "n"): throw .absent
    default: throw .neitherStringNorNumber
    }
  }

  /// The gateway's id for a call, which replaces the client's id `token`.
  package func callID(for token: Span<UInt8>, random: UInt128) -> CallID {
    CallID(ids == .string ? .string : CallID.form(of: token), random: random)
  }

  private static func isBatch(_ text: Span<UInt8>) -> Bool {
    for index in text.indices where !(text[index] <= 0x20) { return text[index] == UInt8(ascii: "[") }
    return false
  }

  // MARK: Replies

  /// A message with the id of a call.
  package struct Match<Call> {
    package let call: Call
    /// The range of the id.
    package let range: Range<Int>
    /// Whether the message only acknowledges the request.
    package let isIgnored: Bool
  }

  /// Returns the call to which a message of the upstream is the reply; nil if the message is not the reply to a call.
  ///
  /// - Parameter call: returns the call with the id in this JSON token; nil if there is none.
  package func match<Call>(_ message: Span<UInt8>, _ call: (Span<UInt8>) -> Call?) -> Match<Call>? {
    for reply in replies {
      guard let range = reply.pointer.find(in: message), let call = call(message.extracting(range)) else { continue }
      if ignore?.matches(message) == true { return Match(call: call, range: range, isIgnored: true) }
      if Self.isReply(message, reply) { return Match(call: call, range: range, isIgnored: false) }
    }
    return nil
  }

  /// Whether the message has the form of a reply, and that form distinguishes replies from requests.
  func isDistinctReply(_ message: Span<UInt8>) -> Bool {
    replies.contains { $0.shape != .any && Self.isReply(message, $0) }
  }

  private static func isReply(_ message: Span<UInt8>, _ reply: Reply) -> Bool {
    guard !reply.pointer.isAmbiguous(in: message) else { return false }
    return switch reply.shape {
    case .any: true
    case .matching(let matcher): matcher.matches(message)
    case .jsonRPC:
      method.find(in: message) == nil && (result.find(in: message) != nil || error.find(in: message) != nil)
    }
  }
}
