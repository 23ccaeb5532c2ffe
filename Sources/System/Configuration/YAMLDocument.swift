import CYAML

/// One node of a YAML file, with its place for error messages.
struct YAMLNode {
  indirect enum Value {
    case scalar(String)
    case sequence([YAMLNode])
    case mapping([(key: YAMLNode, value: YAMLNode)])
  }
  let value: Value
  /// From 1.
  let line: Int
  let column: Int
  /// Whether this is no value at all (YAML 1.2 §10.3.2): nothing, `~` or `null`, without quotes.
  var isNull = false
}

/// Reads one YAML document by libyaml's events. Anchors and aliases are refused: a configuration needs none, and a
/// few lines of them can become gigabytes.
@safe
struct YAMLDocument: ~Copyable {
  /// Nesting allowed. The deepest value, a condition of a named session's `on_open`, has nine levels above it.
  private static let maximumDepth = 12
  /// Bytes of a file; the full commented one has some 20 KiB.
  static let maximumBytes = 1 << 20

  private let parser: UnsafeMutablePointer<yaml_parser_t>
  private let file: String
  private let text: [UInt8]

  /// The document in `text`; nil where there is none. `file` is for messages.
  static func read(_ text: [UInt8], file: String) throws(ConfigurationError) -> YAMLNode? {
    guard text.count <= maximumBytes else {
      throw ConfigurationError(place: file, message: "the file has more than \(maximumBytes) bytes")
    }
    let document = YAMLDocument(text, file: file)
    return try document.parse()
  }

  private init(_ text: [UInt8], file: String) {
    self.file = file
    self.text = text
    unsafe parser = .allocate(capacity: 1)
    unsafe parser.initialize(to: yaml_parser_t())
    let result = unsafe yaml_parser_initialize(parser)
    precondition(result == 1, "libyaml could not allocate a parser")
  }

  deinit {
    unsafe yaml_parser_delete(parser)
    unsafe parser.deallocate()
  }

  private func parse() throws(ConfigurationError) -> YAMLNode? {
    // libyaml reads from the memory during the whole parse.
    let copy = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: max(text.count, 1))
    defer { unsafe copy.deallocate() }
    _ = unsafe copy.update(fromContentsOf: text)
    unsafe yaml_parser_set_input_string(parser, copy.baseAddress, text.count)
    var root: YAMLNode?
    while true {
      var event = unsafe try next()
      defer { unsafe yaml_event_delete(&event) }
      switch unsafe event.type {
      case YAML_STREAM_START_EVENT, YAML_DOCUMENT_END_EVENT: continue
      case YAML_DOCUMENT_START_EVENT:
        if root != nil {
          throw unsafe fail(event.start_mark, "a second document begins here; one file holds one configuration")
        }
      case YAML_STREAM_END_EVENT: return root
      default: root = unsafe try node(from: &event, depth: 0)
      }
    }
  }

  private func next() throws(ConfigurationError) -> yaml_event_t {
    var event = unsafe yaml_event_t()
    guard unsafe yaml_parser_parse(parser, &event) == 1 else {
      throw unsafe syntaxError(parser.pointee)
    }
    return unsafe event
  }

  private func syntaxError(_ parser: yaml_parser_t) -> ConfigurationError {
    let problem = unsafe parser.problem.map { unsafe String(cString: $0) } ?? "not YAML"
    // The reader, which decodes, has an offset for its place and no mark.
    if unsafe parser.error == YAML_READER_ERROR {
      let (line, column) = unsafe place(ofByte: parser.problem_offset)
      return ConfigurationError(place: "\(file):\(line):\(column)", message: "not valid UTF-8 text: \(problem)")
    }
    let mark = unsafe parser.problem_mark
    if let column = tabInIndentation(ofLine: Int(mark.line)) {
      return ConfigurationError(
        place: "\(file):\(mark.line + 1):\(column)", message: "a tab cannot indent YAML: use spaces")
    }
    return fail(mark, "not valid YAML: \(problem)")
  }

  /// Line and column, from 1, of the byte at `offset`.
  private func place(ofByte offset: Int) -> (line: Int, column: Int) {
    let before = text.prefix(offset)
    let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
    return (before.count { $0 == UInt8(ascii: "\n") } + 1, String(decoding: before[start...], as: UTF8.self).count + 1)
  }

  /// The column, from 1, of the first tab before the content of a line; nil where there is none.
  private func tabInIndentation(ofLine index: Int) -> Int? {
    let lines = text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    guard lines.indices.contains(index) else { return nil }
    let indentation = lines[index].prefix { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    return indentation.firstIndex(of: UInt8(ascii: "\t")).map { $0 - indentation.startIndex + 1 }
  }

  private func fail(_ mark: yaml_mark_t, _ message: String) -> ConfigurationError {
    ConfigurationError(place: "\(file):\(mark.line + 1):\(mark.column + 1)", message: message)
  }

  private func node(from event: inout yaml_event_t, depth: Int) throws(ConfigurationError) -> YAMLNode {
    let mark = unsafe event.start_mark
    guard depth < Self.maximumDepth else { throw fail(mark, "nested too deeply") }
    switch unsafe event.type {
    case YAML_SCALAR_EVENT:
      let scalar = unsafe event.data.scalar
      guard unsafe scalar.anchor == nil else { throw fail(mark, "anchors are not allowed here") }
      let bytes = unsafe UnsafeBufferPointer(start: scalar.value, count: scalar.length)
      let text = unsafe String(decoding: bytes, as: UTF8.self)
      var node = make(.scalar(text), mark)
      node.isNull = unsafe scalar.style == YAML_PLAIN_SCALAR_STYLE && ["", "~", "null", "Null", "NULL"].contains(text)
      return node
    case YAML_SEQUENCE_START_EVENT:
      guard unsafe event.data.sequence_start.anchor == nil else { throw fail(mark, "anchors are not allowed here") }
      var items: [YAMLNode] = []
      while true {
        var child = unsafe try next()
        defer { unsafe yaml_event_delete(&child) }
        if unsafe child.type == YAML_SEQUENCE_END_EVENT { return make(.sequence(items), mark) }
        unsafe items.append(try node(from: &child, depth: depth + 1))
      }
    case YAML_MAPPING_START_EVENT:
      guard unsafe event.data.mapping_start.anchor == nil else { throw fail(mark, "anchors are not allowed here") }
      var pairs: [(key: YAMLNode, value: YAMLNode)] = []
      while true {
        var first = unsafe try next()
        defer { unsafe yaml_event_delete(&first) }
        if unsafe first.type == YAML_MAPPING_END_EVENT { return make(.mapping(pairs), mark) }
        let key = unsafe try node(from: &first, depth: depth + 1)
        var second = unsafe try next()
        defer { unsafe yaml_event_delete(&second) }
        unsafe pairs.append((key, try node(from: &second, depth: depth + 1)))
      }
    case YAML_ALIAS_EVENT: throw fail(mark, "aliases are not allowed here")
    default: throw fail(mark, "a value must stand here")
    }
  }

  private func make(_ value: YAMLNode.Value, _ mark: yaml_mark_t) -> YAMLNode {
    YAMLNode(value: value, line: Int(mark.line) + 1, column: Int(mark.column) + 1)
  }
}
