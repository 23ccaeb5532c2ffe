import ByteStreams
import Digests
import HTTPCodec
import Idempotency
import Peers
import Sessions

/// The `Idempotency-Key` of a POST (draft-ietf-httpapi-idempotency-key), and the media type that a repetition must also
/// have.
struct IdempotencyField {
  /// Longest key, in bytes. A UUID has 36 bytes. The digest of a request has up to 128 hexadecimal digits.
  private static let longestKey = 255

  private let key: [UInt8]
  /// Whether the key is the id of a forwarded request. The ids of forwarded requests are in a table of their own.
  let isForwarded: Bool
  /// For how long the forwarding gateway may repeat the request; nil if it does not state a time.
  let retention: TimeSpan?
  /// The media type of the content, in lower case and without parameters.
  private let mediaType: [UInt8]

  /// Returns nil if the request does not have the field. `Content-Type` must have been validated.
  init?(_ request: borrowing HTTPRequestHead) throws(Problem) {
    guard let value = request.fields.first(.idempotencyKey) else { return nil }
    // The draft requires a string of RFC 8941, with quotation marks. Most clients send the key without quotation marks,
    // which is accepted, too.
    let key = value.withoutQuotes()
    guard !key.isEmpty, key.count <= Self.longestKey, key.isKey() else {
      throw Problem(
        .invalidParameter,
        "Idempotency-Key is not valid: use 1 to \(Self.longestKey) visible ASCII characters other than quotation mark and backslash, such as a UUID"
      )
    }
    self.key = [UInt8](copying: key)
    isForwarded = false
    retention = nil
    if let value = request.fields.first(.contentType) { mediaType = Self.mediaType(in: value) } else { mediaType = [] }
  }

  /// Uses the id of a forwarded request as its key. Called if the client has sent no key.
  init?(ofForwarded request: borrowing HTTPRequestHead) {
    guard let id = ForwardedID.read(request) else { return nil }
    key = [UInt8](copying: id)
    isForwarded = true
    retention = request.fields.first(PeerNetwork.retentionField)?.decimalValue().map {
      min(.milliseconds(Int64($0)), PeerNetwork.Limits.longestRetention)
    }
    if let value = request.fields.first(.contentType) { mediaType = Self.mediaType(in: value) } else { mediaType = [] }
  }

  private static func mediaType(in contentType: Span<UInt8>) -> [UInt8] {
    var end = contentType.firstIndex(of: UInt8(ascii: ";")) ?? contentType.count
    while end > 0, contentType[end - 1] == 0x20 || contentType[end - 1] == 0x09 { end -= 1 }
    return [UInt8](copying: contentType.extracting(first: end)).map { ASCII.lowercased($0) }
  }

  /// The key of the table: a digest of the client's key and of the scope in which the key is unique, which is the
  /// principal and the session.
  func key(of principal: String, in session: Session) -> IdempotencyTable.Key {
    var text = ByteQueue()
    // The principal is preceded by its length, since the subject of a token may contain any character. The name of the
    // session is followed by a zero byte, which no name contains.
    text.append(decimal: principal.utf8.count)
    text.append(UInt8(0))
    text.append(principal)
    text.append(session.name)
    if let creation = session.creation {
      // A session that was created again under the same name is a different session, so the incarnation is included.
      // The prefix of delivery ids could not be used instead, since it changes with each term.
      text.append(UInt8(0))
      text.append(hexadecimal: creation.incarnation, digits: 16)
    }
    // The following text distinguishes the ids of forwarded requests from the keys of clients.
    text.append(isForwarded ? "\0forwarded\0" as StaticString : "\0messages\0")
    text.append(key)
    return IdempotencyTable.Key(Digest.sha256(text.bytes).span)
  }

  /// A digest of everything that a repetition must have in common with the first request. `content` is the decoded
  /// body.
  func fingerprint(_ parameters: SendParameters, _ content: [UInt8]) -> IdempotencyTable.Key {
    var text = ByteQueue()
    text.append(mediaType)
    text.append(UInt8(0))
    text.append(decimal: Int(parameters.timeToLive?.nanoseconds ?? -1))
    text.append(UInt8(0))
    text.append(parameters.topic ?? "")
    text.append(UInt8(0))
    if let kind = parameters.kind { text.append(kind == .text ? "type=text\0" as StaticString : "type=binary\0") }
    if let event = parameters.event {
      let (name, namespace) = (event.name ?? [], event.namespace ?? [])
      text.append(Digest.sha256(name.span))
      text.append(Digest.sha256(namespace.span))
    }
    text.append(Digest.sha256(content.span))
    return IdempotencyTable.Key(Digest.sha256(text.bytes).span)
  }
}

extension Span where Element == UInt8 {
  fileprivate func isKey() -> Bool {
    for index in indices {
      let byte = self[index]
      if byte <= 0x20 || byte >= 0x7F || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { return false }
    }
    return true
  }
}
