import ByteStreams
import Calls
import Digests
import JSONCodec
import Signatures

/// A message with placeholders, such as `{"type":"auth","access_token":"${json:${file:/run/secrets/token}}"}`.
///
/// | placeholder | value |
/// | --- | --- |
/// | `${env:NAME}` | an environment variable, read once at startup |
/// | `${file:PATH}` | a file's content without its last line break, read again for each connection attempt |
/// | `${credential}` | the credential of this connection attempt (`upstream.credential`) |
/// | `${cursor}` | the position in the upstream's pushes (`upstream.cursor`) |
/// | `${now}`, `${now:seconds}` | milliseconds, or seconds, of UNIX time |
/// | `${counter}` | 1, 2, 3 …: number of heartbeats sent on this connection, including this heartbeat |
/// | `${sequence}` | the next of the numbers 1, 2, 3 … that the session writes on this connection (`NumberedIDs`) |
/// | `${raw:POINTER}` | a value of the message to which this message responds, copied verbatim (RFC 6901 pointer) |
/// | `${string:POINTER}` | the same; the content if the value is a string |
/// | `${json:…}` | the text inside, escaped for a JSON string |
/// | `${sha256_base64:…}` | the SHA-256 of the text inside, in base64 |
/// | `${base64:…}` | the text inside, in base64 |
/// | `${hmac_sha256_hex:KEY:…}` | the HMAC-SHA-256 of the text inside. `KEY` is a placeholder for a secret |
/// | `${hmac_sha256_base64:KEY:…}` | the same in base64 |
/// | `${uuid}` | a random UUID, the same everywhere in one message |
/// | `${capture:NAME}` | a captured value (`CaptureRule`), encoded for its place |
///
/// The placeholders with `…` may contain placeholders. `$${` is a literal `${`.
package struct Template: Hashable, Sendable, CustomStringConvertible {
  /// The template's source text. It contains a secret only if its author wrote the secret into it.
  package let description: String
  let pieces: [Piece]
  /// The kind of the message. A binary message has no placeholders, and `description` is its content in base64.
  package let kind: MessageKind

  init(description: String, pieces: [Piece], kind: MessageKind = .text) {
    self.description = description
    self.pieces = pieces
    self.kind = kind
  }

  /// A binary message.
  package init(binary: [UInt8]) {
    self.init(description: Base64.encode(binary.span), pieces: [.text(binary)], kind: .binary)
  }

  /// A template without text.
  package static var empty: Template { Template(description: "", pieces: []) }

  indirect enum Piece: Hashable, Sendable {
    case text([UInt8])
    case file(String)
    case credential
    case cursor
    case milliseconds
    case seconds
    case counter
    case sequence
    case raw(JSONPointer)
    case string(JSONPointer)
    case json([Piece])
    case digest([Piece])
    case base64([Piece])
    case hmac(key: Piece, [Piece], isHexadecimal: Bool)
    case uuid
    case capture(String, CapturePlace)
  }

  /// The use of a template, which decides the placeholders that it may contain.
  package enum Context: Sendable {
    /// A setup message. It may respond to the message that an earlier step expected.
    case opening
    /// A heartbeat that the gateway sends.
    case heartbeat
    /// A response to the upstream's heartbeat.
    case reply
    /// A message before the close frame of the gateway.
    case closing
    /// A header field of the opening request.
    case field
    /// A value that does not depend on a connection: the initial cursor.
    case value
  }

  /// The files to read before the template can be rendered.
  package var files: Set<String> {
    var result: Set<String> = []
    Self.visit(pieces) { if case .file(let path) = $0 { result.insert(path) } }
    return result
  }

  /// A text that differs between different templates. It is the same in every process.
  package var identity: String { "\(description)\n\(pieces)" }

  package var usesCredential: Bool { contains(.credential) }

  var usesSequence: Bool { contains(.sequence) }
  var usesUUID: Bool { contains(.uuid) }

  private func contains(_ placeholder: Piece) -> Bool {
    var result = false
    Self.visit(pieces) { if $0 == placeholder { result = true } }
    return result
  }

  /// Visits every piece, including nested ones.
  static func visit(_ pieces: [Piece], _ body: (Piece) -> Void) {
    for piece in pieces {
      body(piece)
      switch piece {
      case .json(let inner), .digest(let inner), .base64(let inner): visit(inner, body)
      case .hmac(let key, let inner, _): visit([key] + inner, body)
      case .text, .file, .credential, .cursor, .milliseconds, .seconds, .counter, .sequence, .raw, .string, .uuid,
        .capture:
        break
      }
    }
  }

  /// The values of the placeholders that encode or sign a text, such as `${base64:…}`. These texts usually contain
  /// secrets, and an upstream may repeat their encoded form in a message for operators.
  package func encodedTexts(with values: TemplateValues) -> [[UInt8]] {
    var result: [[UInt8]] = []
    Self.visit(pieces) { piece in
      switch piece {
      case .digest, .base64, .hmac:
        var text = ByteQueue()
        if (try? Self.render([piece], values, into: &text)) != nil { result.append(text.copyBytes()) }
      default: break
      }
    }
    return result
  }

  // MARK: Filling in

  /// Appends the message. Appends nothing if it throws.
  package func render(_ values: TemplateValues, into output: inout ByteQueue) throws(TemplateError) {
    let before = output.count
    do throws(TemplateError) {
      try Self.render(pieces, values, into: &output)
      guard !kind.isText || UTF8StreamValidator.isValid(output.bytes.extracting(before..<output.count)) else {
        throw .notUTF8
      }
    } catch {
      output.removeLast(output.count - before)
      throw error
    }
  }

  package func rendered(with values: TemplateValues) throws(TemplateError) -> [UInt8] {
    var output = ByteQueue()
    try render(values, into: &output)
    return output.copyBytes()
  }

  /// Like `rendered`, with the values of placeholders percent-encoded.
  package func renderedForQuery(with values: TemplateValues) throws(TemplateError) -> [UInt8] {
    var output = ByteQueue()
    for piece in pieces {
      if case .text(let bytes) = piece {
        output.append(bytes)
      } else {
        var value = ByteQueue()
        try Self.render([piece], values, into: &value)
        output.append(Array(PercentEncoder.encode(value.bytes).utf8))
      }
    }
    return output.copyBytes()
  }

  private static func render(
    _ pieces: [Piece], _ values: TemplateValues, into output: inout ByteQueue
  ) throws(TemplateError) {
    for piece in pieces {
      switch piece {
      case .text(let bytes): output.append(bytes)
      case .file(let path):
        guard let content = values.files[path] else { throw .file(path) }
        output.append(content)
      case .credential:
        guard let credential = values.credential else { throw .noCredential }
        output.append(credential)
      case .cursor:
        guard let cursor = values.cursor else { throw .noCursor }
        output.append(cursor)
      case .milliseconds: output.append(decimal: Int(values.now))
      case .seconds: output.append(decimal: Int(values.now / 1_000))
      case .counter: output.append(decimal: values.counter)
      case .sequence: output.append(decimal: Int(values.sequence))
      case .raw(let pointer):
        let text = values.triggeringMessage.span
        guard let range = pointer.find(in: text), JSONValidator.isValid(text.extracting(range)) else {
          throw .noValue(at: pointer)
        }
        output.append(text.extracting(range))
      case .string(let pointer):
        guard let content = pointer.content(in: values.triggeringMessage.span) else { throw .noValue(at: pointer) }
        output.append(content)
      case .json(let inner):
        var text = ByteQueue()
        try render(inner, values, into: &text)
        output.append(jsonEscaped: text.bytes)
      case .digest(let inner):
        var text = ByteQueue()
        try render(inner, values, into: &text)
        Base64.encode(Digest.sha256(text.bytes).span, into: &output)
      case .base64(let inner):
        var text = ByteQueue()
        try render(inner, values, into: &text)
        Base64.encode(text.bytes, into: &output)
      case .hmac(let key, let inner, let isHexadecimal):
        var secret = ByteQueue()
        try render([key], values, into: &secret)
        guard let key = HMACKey(secret.copyBytes(), minimum: 1) else { throw .key }
        var text = ByteQueue()
        try render(inner, values, into: &text)
        let signature = key.signature(of: text.bytes)
        if isHexadecimal {
          for byte in signature { output.append(hexadecimal: UInt64(byte), digits: 2) }
        } else {
          Base64.encode(signature.span, into: &output)
        }
      case .uuid: values.writeUUID(into: &output)
      case .capture(let name, let place):
        guard let value = values.captures[name] else { throw .noCapture(name) }
        try place.write(value, of: name, into: &output)
      }
    }
  }
}

/// The values of a template's placeholders.
package struct TemplateValues: Sendable {
  package var files: [String: [UInt8]] = [:]
  /// nil if no credential is configured.
  package var credential: [UInt8]?
  /// nil if no cursor is known yet and no initial cursor is configured.
  package var cursor: [UInt8]?
  /// The captured values of the connection.
  var captures: [String: CapturedValue] = [:]
  /// Milliseconds of UNIX time.
  package var now: Int64 = 0
  package var counter: UInt64 = 0
  package var sequence: UInt32 = 0
  /// The message to which the rendered message responds.
  package var triggeringMessage: [UInt8] = []
  /// A random number of the connection, and the number of its messages with a UUID so far.
  package var random: UInt128 = 0
  var uuids: UInt64 = 0

  package init() {}

  package var hasSecrets: Bool { !files.isEmpty || credential != nil }

  fileprivate func writeUUID(into output: inout ByteQueue) {
    var material = ByteQueue()
    for part in [UInt64(truncatingIfNeeded: random >> 64), UInt64(truncatingIfNeeded: random), uuids] {
      material.append(hexadecimal: part, digits: 16)
    }
    var number: UInt128 = 0
    for byte in Digest.sha256(material.bytes).prefix(16) { number = number << 8 | UInt128(byte) }
    CallID(.string, random: number).write(into: &output)
  }
}

/// Why a template could not be rendered.
package enum TemplateError: Error, Hashable, Sendable, CustomStringConvertible {
  case file(String)
  case noCursor
  case noCredential
  case noCapture(String)
  /// An acknowledgement would repeat the value of an earlier push.
  case noCaptureInPush(String)
  /// The value would change the structure of the message.
  case unsafeCapture(String)
  case noValue(at: JSONPointer)
  case notUTF8
  /// The key of an HMAC is empty or too long.
  case key
  /// The `auth` of a namespace is not a JSON object.
  case notObject
  /// The `auth` of a namespace in version 3 is not a query.
  case notQuery
  /// A message to a Socket.IO upstream is not a valid envelope.
  case envelope(String)

  package var description: String {
    switch self {
    case .file(let path): "file '\(path)' cannot be read"
    case .noCursor: "there is no cursor yet; set 'upstream.cursor.initial'"
    case .noCredential: "there is no credential; set 'upstream.credential'"
    case .noCapture(let name):
      "no message has had a value for '${capture:\(name)}' ('upstream.capture.\(name)')"
    case .noCaptureInPush(let name):
      "the push has no value for '${capture:\(name)}' ('upstream.capture.\(name)')"
    case .unsafeCapture(let name):
      "the value of '${capture:\(name)}' has characters that would change the message: control characters, or quotation marks or brackets outside of a string"
    case .noValue(let pointer): "the message to respond to has no value at '\(pointer)'"
    case .notUTF8: "the result is not valid UTF-8, as a text message must be"
    case .key: "the key of an HMAC must have 1 to \(HMACKey.maximumBytes) bytes"
    case .notQuery:
      "it must be parameters such as token=abc, without spaces, ',' and '#', which end the name of the namespace: percent-encode them"
    case .notObject:
      "the result is not a JSON object, which 'auth' must be; write ${json:…} around values, as in {\"token\":\"${json:${credential}}\"}"
    case .envelope(let reason): reason
    }
  }
}
