import ByteStreams
import CYAML

/// The content of a node.
///
/// `YAMLValue` and `YAMLNode` contain each other, so the compiler cannot always infer their conformances: depending on
/// the order of files, it reports a circular reference. So both types declare their conformances.
indirect enum YAMLValue: Sendable, ~BitwiseCopyable {
  case scalar(String)
  /// A scalar with the tag `!!binary`, decoded.
  case binary([UInt8])
  case sequence([YAMLNode])
  case mapping([(key: YAMLNode, value: YAMLNode)])
}

/// A node of a YAML document, with its place for error messages.
struct YAMLNode: Sendable, ~BitwiseCopyable {
  let value: YAMLValue
  /// The line of the node, from 1.
  let line: Int
  let column: Int
  /// Whether this is a null value (YAML 1.2 §10.3.2): nothing, `~` or `null`, without quotes.
  var isNull = false
  /// Whether this is the merge key: `<<` without quotes.
  var isMerge = false
  /// Number of nodes in this node, including the node itself.
  var count = 1
  /// Size of all text in this node, in bytes.
  var bytes = 0
  /// Number of levels of nodes in this node.
  var height = 1
}

/// Reads one YAML document with libyaml's events. An alias (`*name`) is replaced by the node of its anchor (`&name`),
/// and the merge key (`<<`) adds the pairs of another mapping. The repetition of nodes by aliases is limited, since a
/// few lines with aliases can expand to gigabytes.
@safe
struct YAMLDocument: ~Copyable {
  /// Maximum nesting depth. The deepest value, a condition of a named session's `on_open`, has nine levels above it.
  private static let maximumDepth = 12
  /// Maximum number of nodes that all aliases of a file repeat: several hundred for each session.
  private static let maximumRepeatedNodes = 100_000
  /// Maximum size of text that all aliases of a file repeat: enough for long messages and secrets in each session.
  private static let maximumRepeatedBytes = 16 << 20
  /// Maximum size of a file in bytes. config/drawbridge.yaml, which has every setting with a comment, has about 55 KiB.
  static let maximumBytes = 1 << 20

  private let parser: UnsafeMutablePointer<yaml_parser_t>
  private let file: String
  private let text: [UInt8]
  private struct Anchor {
    let node: YAMLNode
    var isUsed = false
  }

  private var anchors: [String: Anchor] = [:]
  private var repeatedNodes = 0
  private var repeatedBytes = 0
  /// The nodes whose anchors were defined again before an alias had used them.
  private var replaced: [YAMLNode] = []

  /// Returns the document in `text`, or nil if `text` contains no document. `file` is for messages. `warn` receives the
  /// warnings.
  static func read(
    _ text: [UInt8], file: String, warn: (ConfigurationError) -> Void = { _ in }
  ) throws(ConfigurationError) -> YAMLNode? {
    guard text.count <= maximumBytes else {
      throw ConfigurationError(place: file, message: "the file is larger than \(maximumBytes) bytes")
    }
    var document = YAMLDocument(text, file: file)
    let root = try document.parse()
    for node in document.unused {
      warn(
        ConfigurationError(
          place: node.place(in: file),
          message: "this anchor is not used by any alias: quote the value if it begins with '&'")
      )
    }
    return root
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

  private mutating func parse() throws(ConfigurationError) -> YAMLNode? {
    // The text is copied to memory with a fixed address, since libyaml reads from this memory during the whole parse.
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
          throw unsafe fail(event.start_mark, "a second document begins here: the file must contain only one")
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
    let problem = unsafe parser.problem.map { unsafe String(cString: $0) } ?? "unknown error"
    // An error of libyaml's reader, which decodes the text, has an offset instead of a mark.
    if unsafe parser.error == YAML_READER_ERROR {
      let (line, column) = unsafe place(ofByte: parser.problem_offset)
      return ConfigurationError(place: "\(file):\(line):\(column)", message: "not valid UTF-8 text: \(problem)")
    }
    let mark = unsafe parser.problem_mark
    if let column = tabInIndentation(ofLine: Int(mark.line)) {
      return ConfigurationError(
        place: "\(file):\(mark.line + 1):\(column)", message: "a tab is not allowed in the indentation: use spaces")
    }
    return fail(mark, "not valid YAML: \(problem)")
  }

  /// Returns line and column, from 1, of the byte at `offset`.
  private func place(ofByte offset: Int) -> (line: Int, column: Int) {
    let before = text.prefix(offset)
    let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
    return (before.count { $0 == UInt8(ascii: "\n") } + 1, String(decoding: before[start...], as: UTF8.self).count + 1)
  }

  /// Returns the column, from 1, of the first tab in the indentation of a line; nil if there is no tab.
  private func tabInIndentation(ofLine index: Int) -> Int? {
    let lines = text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    guard lines.indices.contains(index) else { return nil }
    let indentation = lines[index].prefix { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    return indentation.firstIndex(of: UInt8(ascii: "\t")).map { $0 - indentation.startIndex + 1 }
  }

  private func fail(_ mark: yaml_mark_t, _ message: String) -> ConfigurationError {
    ConfigurationError(place: "\(file):\(mark.line + 1):\(mark.column + 1)", message: message)
  }

  private mutating func node(from event: inout yaml_event_t, depth: Int) throws(ConfigurationError) -> YAMLNode {
    let mark = unsafe event.start_mark
    let (anchor, node) = unsafe try content(of: &event, mark, depth: depth)
    if let anchor {
      // A value that begins with '&' by mistake is read as an anchor of an empty value, and would be lost. It may be a
      // secret, so the message does not contain it.
      if node.isNull, node.scalar?.isEmpty == true {
        throw fail(mark, "this anchor has no value: quote the value if it begins with '&'")
      }
      if let old = anchors.updateValue(Anchor(node: node), forKey: anchor), !old.isUsed { replaced.append(old.node) }
    }
    return node
  }

  /// Returns the node that `event` begins, and the name of its anchor.
  private mutating func content(
    of event: inout yaml_event_t, _ mark: yaml_mark_t, depth: Int
  ) throws(ConfigurationError) -> (anchor: String?, node: YAMLNode) {
    guard depth < Self.maximumDepth else { throw fail(mark, "nested deeper than \(Self.maximumDepth) levels") }
    switch unsafe event.type {
    case YAML_SCALAR_EVENT:
      let scalar = unsafe event.data.scalar
      let isBinary = unsafe name(scalar.tag) == Self.tagPrefix + "binary"
      if !isBinary { unsafe try verify(scalar.tag, mark) }
      let bytes = unsafe UnsafeBufferPointer(start: scalar.value, count: scalar.length)
      let text = unsafe String(decoding: bytes, as: UTF8.self)
      if isBinary {
        let digits = text.utf8.filter { $0 > 0x20 }
        guard let content = Base64.decode(digits.span) else {
          throw fail(mark, "'!!binary' needs base64 with padding, as in !!binary EAA=")
        }
        var node = make(.binary(content), mark)
        node.bytes = content.count
        return unsafe (name(scalar.anchor), node)
      }
      var node = make(.scalar(text), mark)
      let isPlain = unsafe scalar.style == YAML_PLAIN_SCALAR_STYLE
      node.isNull = isPlain && ["", "~", "null", "Null", "NULL"].contains(text)
      node.isMerge = isPlain && text == "<<"
      node.bytes = text.utf8.count
      return unsafe (name(scalar.anchor), node)
    case YAML_SEQUENCE_START_EVENT:
      unsafe try verify(event.data.sequence_start.tag, mark)
      var items: [YAMLNode] = []
      while true {
        var child = unsafe try next()
        defer { unsafe yaml_event_delete(&child) }
        if unsafe child.type == YAML_SEQUENCE_END_EVENT {
          return unsafe (name(event.data.sequence_start.anchor), make(.sequence(items), mark, of: items))
        }
        unsafe items.append(try node(from: &child, depth: depth + 1))
      }
    case YAML_MAPPING_START_EVENT:
      unsafe try verify(event.data.mapping_start.tag, mark)
      var pairs: [(key: YAMLNode, value: YAMLNode)] = []
      while true {
        var first = unsafe try next()
        defer { unsafe yaml_event_delete(&first) }
        if unsafe first.type == YAML_MAPPING_END_EVENT {
          pairs = try merged(pairs)
          let node = make(.mapping(pairs), mark, of: pairs.flatMap { [$0.key, $0.value] })
          return unsafe (name(event.data.mapping_start.anchor), node)
        }
        let key = unsafe try node(from: &first, depth: depth + 1)
        var second = unsafe try next()
        defer { unsafe yaml_event_delete(&second) }
        unsafe pairs.append((key, try node(from: &second, depth: depth + 1)))
      }
    case YAML_ALIAS_EVENT:
      let name = unsafe name(event.data.alias.anchor) ?? ""
      guard let node = anchors[name]?.node else {
        throw fail(mark, "alias '*\(name)' has no anchor '&\(name)' before it")
      }
      anchors[name]?.isUsed = true
      repeatedNodes += node.count
      repeatedBytes += node.bytes
      guard repeatedNodes <= Self.maximumRepeatedNodes else {
        throw fail(mark, "aliases repeat more than \(Self.maximumRepeatedNodes) values")
      }
      guard repeatedBytes <= Self.maximumRepeatedBytes else {
        throw fail(mark, "aliases repeat more than \(Self.maximumRepeatedBytes >> 20) MiB of text")
      }
      guard depth + node.height <= Self.maximumDepth else {
        throw fail(mark, "nested deeper than \(Self.maximumDepth) levels")
      }
      return (nil, node)
    default: throw fail(mark, "expected a value")
    }
  }

  /// Verifies the tag of a node. Settings have types of their own, so the tags of YAML's core schema (YAML 1.2 §10.3)
  /// have no effect. Any other tag is an error, since the value would have another meaning without its tag. A tag may
  /// be a secret that begins with '!' by mistake, so the message does not contain it.
  private func verify(_ tag: UnsafeMutablePointer<yaml_char_t>?, _ mark: yaml_mark_t) throws(ConfigurationError) {
    guard let tag = unsafe name(tag), tag != "!" else { return }
    let kind = tag.hasPrefix(Self.tagPrefix) ? String(tag.dropFirst(Self.tagPrefix.count)) : ""
    if ["str", "int", "float", "bool", "null", "seq", "map", "merge"].contains(kind) { return }
    throw fail(mark, "this tag is not supported: quote the value if it begins with '!'")
  }

  private static var tagPrefix: String { "tag:yaml.org,2002:" }

  /// The nodes whose anchors no alias uses, in order.
  private var unused: [YAMLNode] {
    (replaced + anchors.values.filter { !$0.isUsed }.map(\.node)).sorted { ($0.line, $0.column) < ($1.line, $1.column) }
  }

  private func name(_ anchor: UnsafeMutablePointer<yaml_char_t>?) -> String? {
    unsafe anchor.map { unsafe String(cString: $0) }
  }

  /// Returns `pairs` with the pairs of the merge key `<<`, a mapping or a list of mappings. The mapping's own keys take
  /// precedence over merged keys, and earlier mappings of the list over later mappings.
  private func merged(
    _ pairs: [(key: YAMLNode, value: YAMLNode)]
  ) throws(ConfigurationError) -> [(key: YAMLNode, value: YAMLNode)] {
    guard pairs.contains(where: \.key.isMerge) else { return pairs }
    var result = pairs.filter { !$0.key.isMerge }
    var names = Set(result.compactMap(\.key.scalar))
    for (key, value) in pairs where key.isMerge {
      let sources = if case .sequence(let items) = value.value { items } else { [value] }
      for source in sources {
        guard case .mapping(let others) = source.value else {
          throw ConfigurationError(
            place: "\(file):\(key.line):\(key.column)", message: "'<<' must be a mapping, as in '<<: *name'")
        }
        for other in others where other.key.scalar.map({ names.insert($0).inserted }) ?? true { result.append(other) }
      }
    }
    return result
  }

  private func make(_ value: YAMLValue, _ mark: yaml_mark_t, of children: [YAMLNode] = []) -> YAMLNode {
    var node = YAMLNode(value: value, line: Int(mark.line) + 1, column: Int(mark.column) + 1)
    node.count += children.reduce(0) { $0 + $1.count }
    node.bytes = children.reduce(0) { $0 + $1.bytes }
    node.height += children.map(\.height).max() ?? 0
    return node
  }
}

extension YAMLNode {
  fileprivate var scalar: String? { if case .scalar(let text) = value { text } else { nil } }
}
