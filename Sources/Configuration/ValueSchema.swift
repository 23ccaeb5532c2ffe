import ByteStreams
import JSONCodec

/// The values that a setting accepts, for the JSON Schema of the configuration (draft 7).
///
/// The schema is as strict as an editor needs, and never stricter than the reader of the setting. So it allows a text
/// in place of any value, since the text may refer to a file or a variable, and it allows quoted numbers.
indirect enum ValueSchema: Equatable, Sendable {
  /// Any plain value.
  case text
  case boolean
  case integer(ClosedRange<Int>, orWord: String? = nil)
  case number(ClosedRange<Double>)
  case size(ClosedRange<Int>)
  case duration(ClosedRange<TimeSpan>)
  case words([String])
  /// A list of texts. A single element needs no brackets.
  case texts
  /// A list of mappings; empty text is an empty list.
  case list(ValueSchema)
  /// A mapping with any keys, whose values are of one kind. `orLines`: a list of `key: value` texts is accepted, too.
  case pairs(ValueSchema, orLines: Bool = false)
  /// These keys and no others.
  case members([Member], required: [String] = [])
  case any([ValueSchema])
  /// A schema that several settings use.
  case shared(String, ValueSchema)

  struct Member: Equatable, Sendable {
    let name: String
    let schema: ValueSchema

    init(_ name: String, _ schema: ValueSchema) {
      self.name = name
      self.schema = schema
    }
  }

  private static var reference: String { #"\$\{(env|file):"# }

  /// - Parameter shared: collects the schemas that `$ref` refers to.
  func node(_ shared: inout [(name: String, value: SchemaNode)]) -> SchemaNode {
    switch self {
    case .text: .object([("type", .texts(["string", "number", "boolean", "null"]))])
    case .boolean: .object([("type", .texts(["boolean", "string"])), ("pattern", Self.pattern("true|false"))])
    case .integer(let range, let word):
      Self.number("integer", "\(range.lowerBound)", "\(range.upperBound)", word.map { "-?[0-9]+|\($0)" } ?? "-?[0-9]+")
    case .number(let range):
      Self.number("number", "\(range.lowerBound)", "\(range.upperBound)", #"-?[0-9]+(\.[0-9]+)?"#)
    case .size(let range):
      Self.number("integer", "\(range.lowerBound)", "\(range.upperBound)", "[0-9]+(B|KiB|MiB|GiB)?")
    case .duration(let range):
      Self.number(
        "integer", "\(range.lowerBound.seconds)", "\(range.upperBound.seconds)",
        "[0-9]+|(?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?")
    case .words(let words):
      .object([
        (
          "anyOf",
          .array([
            // An editor's YAML reader takes a word such as 1.2 as a number, so the number is accepted, too.
            .object([("enum", .array(words.map { .text($0) } + words.filter { Double($0) != nil }.map { .number($0) }))]
            ),
            .object([("type", .text("string")), ("pattern", .text(Self.reference))]),
          ])
        )
      ])
    case .texts:
      .object([
        ("type", .texts(["array", "string", "number", "null"])), ("items", ValueSchema.text.node(&shared)),
      ])
    case .list(let element):
      .object([
        ("type", .texts(["array", "string", "null"])), ("items", element.node(&shared)), ("maxLength", .number("0")),
      ])
    case .pairs(let value, let orLines):
      .object(
        [
          ("type", .texts(orLines ? ["object", "array", "string", "null"] : ["object", "null"])),
          ("additionalProperties", value.node(&shared)),
        ] + (orLines ? [("items", ValueSchema.text.node(&shared))] : []))
    case .members(let members, let required):
      SchemaNode.section(members.map { ($0.name, $0.schema.node(&shared)) }, required: required)
    case .any(let schemas): .object([("anyOf", .array(schemas.map { $0.node(&shared) }))])
    case .shared(let name, let schema):
      Self.shared(name, schema, &shared)
    }
  }

  private static func shared(
    _ name: String, _ schema: ValueSchema, _ shared: inout [(name: String, value: SchemaNode)]
  ) -> SchemaNode {
    if !shared.contains(where: { $0.name == name }) {
      let node = schema.node(&shared)
      shared.append((name, node))
    }
    return .reference(name)
  }

  /// `minimum` and `maximum` apply to numbers only, `pattern` to texts only.
  private static func number(_ type: String, _ minimum: String, _ maximum: String, _ text: String) -> SchemaNode {
    .object([
      ("type", .texts([type, "string"])), ("minimum", .number(minimum)), ("maximum", .number(maximum)),
      ("pattern", pattern(text)),
    ])
  }

  private static func pattern(_ text: String) -> SchemaNode { .text("^(\(text))$|\(reference)") }

  /// The default of a setting as a JSON value, made from its text; nil if it is not a plain value.
  func defaultValue(_ text: String) -> SchemaNode? {
    switch self {
    case .boolean: text == "true" ? .word("true") : .word("false")
    case .integer: Int(text) == nil ? .text(text) : .number(text)
    case .number: .number(text)
    case .size: Int(text) == nil ? .text(text) : .number(text)
    case .duration: .text(text)
    case .words: .text(text.hasPrefix("\"") ? String(text.dropFirst().dropLast()) : text)
    default: nil
    }
  }
}

/// A value of JSON whose members keep their order.
indirect enum SchemaNode: Equatable {
  case text(String)
  case number(String)
  /// `true` or `false`.
  case word(String)
  case array([SchemaNode])
  case object([(String, SchemaNode)])

  static func texts(_ texts: [String]) -> SchemaNode { .array(texts.map { .text($0) }) }
  static func reference(_ name: String) -> SchemaNode { .object([("$ref", .text("#/definitions/\(name)"))]) }

  /// A mapping with these keys and no others. A section whose lines are all commented out is null.
  static func section(_ members: [(String, SchemaNode)], required: [String] = []) -> SchemaNode {
    .object(
      [("type", .texts(["object", "null"])), ("additionalProperties", .word("false"))]
        + (required.isEmpty ? [] : [("required", .texts(required))]) + [("properties", .object(members))])
  }

  static func == (left: SchemaNode, right: SchemaNode) -> Bool {
    switch (left, right) {
    case (.text(let left), .text(let right)), (.number(let left), .number(let right)),
      (.word(let left), .word(let right)):
      left == right
    case (.array(let left), .array(let right)): left == right
    case (.object(let left), .object(let right)):
      left.elementsEqual(right) { $0.0 == $1.0 && $0.1 == $1.1 }
    default: false
    }
  }

  /// Longest line of an array or object that is written on one line, in characters.
  private static var width: Int { 110 }

  /// Writes an array or object on one line if it fits. If it does not, writes each element or member on a separate
  /// line.
  func write(into output: inout ByteQueue, indentation: Int = 0) {
    let isShort = width(atMost: Self.width - indentation) != nil
    switch self {
    case .text(let text): output.append(jsonString: text)
    case .number(let text), .word(let text): output.append(text)
    case .array(let elements): write(elements.map { (nil, $0) }, "[", "]", isShort, indentation, &output)
    case .object(let members): write(members.map { ($0.0, $0.1) }, "{", "}", isShort, indentation, &output)
    }
  }

  private func write(
    _ items: [(name: String?, value: SchemaNode)], _ start: String, _ end: String, _ isShort: Bool, _ indentation: Int,
    _ output: inout ByteQueue
  ) {
    func lineBreak(_ indentation: Int) {
      if !isShort { output.append("\n" + String(repeating: " ", count: indentation)) }
    }
    output.append(start)
    for (index, item) in items.enumerated() {
      if index > 0 { output.append(isShort ? ", " : ",") }
      lineBreak(indentation + 1)
      if let name = item.name {
        output.append(jsonString: name)
        output.append(": ")
      }
      item.value.write(into: &output, indentation: indentation + 1)
    }
    lineBreak(indentation)
    output.append(end)
  }

  /// The approximate length on one line; nil above a limit.
  private func width(atMost limit: Int) -> Int? {
    var width = 2
    switch self {
    case .text(let text), .number(let text), .word(let text): width += text.count
    case .array(let elements):
      for element in elements { width += 2 + (element.width(atMost: limit) ?? limit) }
    case .object(let members):
      for (name, value) in members { width += name.count + 6 + (value.width(atMost: limit) ?? limit) }
    }
    return width <= limit ? width : nil
  }
}
