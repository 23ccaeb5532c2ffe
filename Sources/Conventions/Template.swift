import ByteStreams
import Digests
import JSONCodec

/// A message with blanks to fill in, such as `{"type":"auth","access_token":"${json:${file:/run/secrets/token}}"}`.
///
/// | blank | what stands in its place |
/// | --- | --- |
/// | `${env:NAME}` | a variable of the environment, read once at the start |
/// | `${file:PATH}` | a file's content without its last line break, read anew at each dial |
/// | `${cursor}` | where the pushes have come to (`upstream.cursor`) |
/// | `${now}`, `${now:seconds}` | milliseconds, or seconds, of UNIX time |
/// | `${counter}` | 1, 2, 3 …: how many heartbeats went out on this connection, this one included |
/// | `${raw:POINTER}` | a value of the message that is being answered, copied as it is written (RFC 6901 pointer) |
/// | `${string:POINTER}` | the same, but of a string its content |
/// | `${json:…}` | what is inside, escaped to stand in a JSON string |
/// | `${sha256_base64:…}` | the SHA-256 of what is inside, in base64 |
///
/// The last two hold blanks themselves. `$${` stands for `${`.
package struct Template: Hashable, Sendable, CustomStringConvertible {
  /// As it was written; no secret stands in it that its author did not write there.
  package let description: String
  let pieces: [Piece]

  indirect enum Piece: Hashable, Sendable {
    case text([UInt8])
    case file(String)
    case cursor
    case milliseconds
    case seconds
    case counter
    case raw(JSONPointer)
    case string(JSONPointer)
    case json([Piece])
    case digest([Piece])
  }

  /// Where a template stands decides which blanks have a meaning in it.
  package enum Place: Sendable {
    /// An opening message: it may answer the message that was expected before.
    case opening
    /// A heartbeat of ours.
    case heartbeat
    /// An answer to the upstream's heartbeat.
    case reply
    /// A value that nothing is known of but the outside: the first cursor.
    case value
  }

  /// The files that are to be read before it can be rendered.
  package var files: Set<String> { Self.files(of: pieces) }

  private static func files(of pieces: [Piece]) -> Set<String> {
    var result: Set<String> = []
    for piece in pieces {
      switch piece {
      case .file(let path): result.insert(path)
      case .json(let inner), .digest(let inner): result.formUnion(files(of: inner))
      case .text, .cursor, .milliseconds, .seconds, .counter, .raw, .string: break
      }
    }
    return result
  }

  /// Whether what it answers must be kept for it.
  package var answersMessage: Bool { Self.answersMessage(pieces) }

  private static func answersMessage(_ pieces: [Piece]) -> Bool {
    pieces.contains { piece in
      switch piece {
      case .raw, .string: true
      case .json(let inner), .digest(let inner): answersMessage(inner)
      case .text, .file, .cursor, .milliseconds, .seconds, .counter: false
      }
    }
  }

  // MARK: Filling in

  /// Appends the message; nothing where a blank cannot be filled.
  package func render(_ values: TemplateValues, into output: inout ByteQueue) throws(TemplateError) {
    let before = output.count
    do throws(TemplateError) {
      try Self.render(pieces, values, into: &output)
      guard UTF8StreamValidator.isValid(output.bytes.extracting(before..<output.count)) else { throw .notText }
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

  private static func render(
    _ pieces: [Piece], _ values: TemplateValues, into output: inout ByteQueue
  ) throws(TemplateError) {
    for piece in pieces {
      switch piece {
      case .text(let bytes): output.append(bytes)
      case .file(let path):
        guard let content = values.files[path] else { throw .file(path) }
        output.append(content)
      case .cursor:
        guard let cursor = values.cursor else { throw .noCursor }
        output.append(cursor)
      case .milliseconds: output.append(decimal: Int(values.now))
      case .seconds: output.append(decimal: Int(values.now / 1_000))
      case .counter: output.append(decimal: values.counter)
      case .raw(let pointer):
        let text = values.answered.span
        guard let range = pointer.find(in: text), JSONValidator.isValid(text.extracting(range)) else {
          throw .nothing(at: pointer)
        }
        output.append(text.extracting(range))
      case .string(let pointer):
        guard let content = pointer.content(in: values.answered.span) else { throw .nothing(at: pointer) }
        output.append(content)
      case .json(let inner):
        var text = ByteQueue()
        try render(inner, values, into: &text)
        output.append(jsonEscaped: text.bytes)
      case .digest(let inner):
        var text = ByteQueue()
        try render(inner, values, into: &text)
        Base64.encode(Digest.sha256(text.bytes).span, into: &output)
      }
    }
  }
}

/// What stands in the place of a template's blanks.
package struct TemplateValues: Sendable {
  package var files: [String: [UInt8]] = [:]
  /// nil: none is known yet, and none was configured to begin with.
  package var cursor: [UInt8]?
  /// Milliseconds of UNIX time.
  package var now: Int64 = 0
  package var counter: UInt64 = 0
  /// The message that is being answered.
  package var answered: [UInt8] = []

  package init() {}
}

/// Why a message could not be made.
package enum TemplateError: Error, Hashable, Sendable, CustomStringConvertible {
  case file(String)
  case noCursor
  case nothing(at: JSONPointer)
  case notText

  package var description: String {
    switch self {
    case .file(let path): "file '\(path)' could not be read"
    case .noCursor: "there is no cursor yet; 'upstream.cursor.initial' would give the first one"
    case .nothing(let pointer): "the message that is being answered has no value at '\(pointer)'"
    case .notText: "it would not be UTF-8, as a text message must be"
    }
  }
}
