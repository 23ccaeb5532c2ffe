import JSONCodec

extension Template {
  /// Parses a template. `environment` supplies the values for `${env:…}`.
  package init(
    _ text: String, in context: Context, environment: [String: String]
  ) throws(TemplateSyntaxError) {
    var reader = TemplateReader(text, context, environment)
    self = try Template(description: text, pieces: try reader.read()).placingCaptures()
  }
}

/// Describes the fault of a template, and the accepted form.
package struct TemplateSyntaxError: Error, Hashable, Sendable, CustomStringConvertible {
  package let description: String
}

private struct TemplateReader {
  private var rest: Substring
  private let context: Template.Context
  private let environment: [String: String]

  /// Maximum nesting of placeholders. Even `${json:${sha256_base64:${sha256_base64:…}}}` needs only three levels.
  private static let maximumDepth = 8

  init(_ text: String, _ context: Template.Context, _ environment: [String: String]) {
    rest = Substring(text)
    self.context = context
    self.environment = environment
  }

  mutating func read() throws(TemplateSyntaxError) -> [Template.Piece] { try pieces(depth: 0) }

  /// Parses up to the end of the text, or inside a placeholder up to its closing brace.
  private mutating func pieces(depth: Int) throws(TemplateSyntaxError) -> [Template.Piece] {
    var result: [Template.Piece] = []
    var text: [UInt8] = []
    func flushed() -> [Template.Piece] { text.isEmpty ? [] : [.text(text)] }
    while let character = rest.first {
      if rest.hasPrefix("$${") {
        text += Array("${".utf8)
        rest.removeFirst(3)
      } else if rest.hasPrefix("${") {
        result += flushed()
        text = []
        rest.removeFirst(2)
        let piece = try placeholder(depth: depth)
        result.append(piece)
      } else if depth > 0, character == "}" {
        break
      } else {
        text += Array(String(character).utf8)
        rest.removeFirst()
      }
    }
    return result + flushed()
  }

  /// Parses a placeholder after its `${`, including the `}`.
  private mutating func placeholder(depth: Int) throws(TemplateSyntaxError) -> Template.Piece {
    let name = String(rest.prefix { $0 != ":" && $0 != "}" })
    rest.removeFirst(name.count)
    if rest.first == ":" {
      rest.removeFirst()
      if let form = Form(rawValue: name) {
        guard depth < Self.maximumDepth else {
          throw TemplateSyntaxError(description: "placeholders are nested deeper than \(Self.maximumDepth) levels")
        }
        let key = form.needsKey ? try key(of: name, depth: depth) : .text([])
        let inner = try pieces(depth: depth + 1)
        try close(name)
        return switch form {
        case .json: .json(inner)
        case .digest: .digest(inner)
        case .base64: .base64(inner)
        case .hexadecimalHMAC: .hmac(key: key, inner, isHexadecimal: true)
        case .base64HMAC: .hmac(key: key, inner, isHexadecimal: false)
        }
      }
      let argument = String(rest.prefix { $0 != "}" })
      rest.removeFirst(argument.count)
      try close(name)
      return try piece(name, argument)
    }
    try close(name)
    return try piece(name, nil)
  }

  /// A placeholder that changes the text inside.
  private enum Form: String {
    case json
    case digest = "sha256_base64"
    case base64
    case hexadecimalHMAC = "hmac_sha256_hex"
    case base64HMAC = "hmac_sha256_base64"

    var needsKey: Bool { self == .hexadecimalHMAC || self == .base64HMAC }
  }

  /// Parses the key of an HMAC and the colon after it. A key that is written in the configuration itself is refused,
  /// since it would be shown with the configuration.
  private mutating func key(of name: String, depth: Int) throws(TemplateSyntaxError) -> Template.Piece {
    let error = TemplateSyntaxError(
      description:
        "'${\(name)' needs a key and a text: write ${\(name):${file:PATH}:…}, with ${file:PATH}, ${env:NAME} or ${credential} as the key"
    )
    guard ["${file:", "${env:", "${credential}"].contains(where: { rest.hasPrefix($0) }) else { throw error }
    rest.removeFirst(2)
    let key = try placeholder(depth: depth + 1)
    guard rest.first == ":" else { throw error }
    rest.removeFirst()
    return key
  }

  private mutating func close(_ name: String) throws(TemplateSyntaxError) {
    guard rest.first == "}" else { throw TemplateSyntaxError(description: "'${\(name)' has no closing '}'") }
    rest.removeFirst()
  }

  private func piece(_ name: String, _ argument: String?) throws(TemplateSyntaxError) -> Template.Piece {
    switch (name, argument) {
    case ("env", let variable?):
      guard let value = environment[variable] else {
        throw TemplateSyntaxError(description: "environment variable '\(variable)' is not set")
      }
      return .text(Array(value.utf8))
    case ("file", let path?) where !path.isEmpty: return .file(path)
    case ("credential", nil):
      guard [.opening, .field, .closing].contains(context) else { throw notAllowedHere(name) }
      return .credential
    case ("cursor", nil):
      guard context != .value, context != .field else { throw notAllowedHere(name) }
      return .cursor
    case ("now", nil): return .milliseconds
    case ("now", "seconds"): return .seconds
    case ("counter", nil):
      guard context == .heartbeat else { throw notAllowedHere(name) }
      return .counter
    case ("sequence", nil):
      guard context != .value, context != .field else { throw notAllowedHere(name) }
      return .sequence
    case ("uuid", nil):
      guard context != .value else { throw notAllowedHere(name) }
      return .uuid
    case ("capture", let name?) where CaptureRule.isValid(name: name):
      guard context != .value, context != .field else { throw notAllowedHere(name: "capture:\(name)", kind: "capture") }
      return .capture(name, .encoded)
    case ("raw", let text?), ("string", let text?):
      guard context == .opening || context == .reply else { throw notAllowedHere(name) }
      guard let pointer = JSONPointer(text) else {
        throw TemplateSyntaxError(
          description: "'\(text)' is not a JSON pointer: it must begin with '/', as in ${\(name):/d/salt}")
      }
      return name == "raw" ? .raw(pointer) : .string(pointer)
    default:
      let shown = argument.map { "\(name):\($0)" } ?? name
      throw TemplateSyntaxError(
        description: """
          '${\(shown)}' is not a placeholder; use ${env:NAME}, ${file:PATH}, ${credential}, ${cursor}, ${now}, ${now:seconds}, ${counter}, ${sequence}, \
          ${raw:/POINTER}, ${string:/POINTER}, ${capture:NAME}, ${uuid}, ${json:…}, ${base64:…}, ${sha256_base64:…}, ${hmac_sha256_hex:KEY:…} or ${hmac_sha256_base64:KEY:…}
          """)
    }
  }

  private func notAllowedHere(_ name: String) -> TemplateSyntaxError { notAllowedHere(name: name, kind: name) }

  private func notAllowedHere(name: String, kind: String) -> TemplateSyntaxError {
    let home =
      switch kind {
      case "counter": "in 'upstream.heartbeat.client.message'"
      case "cursor", "sequence", "capture": "in a message"
      case "uuid": "in a message, a header field or a query"
      case "credential": "in 'upstream.on_open', 'upstream.on_close' and 'upstream.credential.header'"
      default: "in 'upstream.on_open', 'upstream.acknowledge' and 'upstream.heartbeat.server.reply'"
      }
    return TemplateSyntaxError(description: "'${\(name)}' is not allowed here, only \(home)")
  }
}
